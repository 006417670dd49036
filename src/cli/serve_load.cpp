#include "cli/serve_load.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "base/bounded_json.h"
#include "base/error.h"

namespace lockstep {
namespace {
using Clock = std::chrono::steady_clock;
using LoadJson = nlohmann::ordered_json;
constexpr double kAnswerSeconds = 600;
constexpr int kLargestWord = 49;

Clock::duration in_seconds(double seconds) { return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)); }
double seconds_between(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double>(to - from).count(); }

std::string prompt_of(std::uint64_t seed, std::int64_t words) {
  std::mt19937_64 draws(seed);
  std::string prompt;
  for (std::int64_t i = 0; i < words; ++i) prompt += fmt::format("{}{}", i == 0 ? "" : " ", draws() % kLargestWord + 1);
  return prompt + "=48:";
}

// The number of tokens in an event of a stream.
std::int64_t tokens_of(const LoadJson& event) {
  if (!event.is_object() || !event.contains("choices") || !event["choices"].is_array() || event["choices"].empty()) return 0;
  const LoadJson& choice = event["choices"][0];
  if (!choice.is_object()) return 0;
  if (choice.contains("token_ids") && choice["token_ids"].is_array()) return static_cast<std::int64_t>(choice["token_ids"].size());
  return choice.contains("text") && choice["text"].is_string() && !choice["text"].get_ref<const std::string&>().empty() ? 1 : 0;
}

class RunningLoad {
 public:
  explicit RunningLoad(const ServeLoad& load)
      : load_(load), began_(Clock::now()), from_(began_ + in_seconds(load.warm_seconds)), to_(from_ + in_seconds(load.seconds)) {
    for (const LoadClass& one : load.classes) figures_.push_back({.name = one.name});
  }
  std::vector<ClassFigures> run() {
    std::vector<std::thread> threads;
    for (std::size_t c = 0; c < load_.classes.size(); ++c) {
      if (load_.classes[c].rate > 0) threads.emplace_back([this, c] { arrive(c); });
      for (std::int64_t i = 0; i < load_.classes[c].at_once; ++i) threads.emplace_back([this, c, i] { follow(c, static_cast<std::uint64_t>(i)); });
    }
    while (Clock::now() < to_ && !load_.stop.stopped() && !hopeless_) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ended_ = true;
    for (std::thread& one : threads) one.join();
    load_.stop.throw_if_stopped();
    for (ClassFigures& one : figures_) {
      one.tokens_per_second = static_cast<double>(one.tokens) / load_.seconds;
      for (std::vector<double>* all : {&one.first_seconds, &one.gap_seconds, &one.answer_seconds}) std::sort(all->begin(), all->end());
    }
    return figures_;
  }

 private:
  // Sends requests one after another, each with a number of its own.
  void follow(std::size_t c, std::uint64_t which) {
    for (std::uint64_t call = 0; !ended_; ++call)
      if (!ask(c, (which << 32) + call, Clock::now())) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  void arrive(std::size_t c) {
    std::mt19937_64 draws(load_.seed + c);
    std::deque<std::thread> open;
    Clock::time_point at = began_;
    for (std::uint64_t number = std::uint64_t{1} << 62;; ++number) {
      at += in_seconds(-std::log1p(-static_cast<double>(draws() >> 11) * 0x1p-53) / load_.classes[c].rate);
      while (!ended_ && Clock::now() < at) std::this_thread::sleep_for(std::min<Clock::duration>(at - Clock::now(), std::chrono::milliseconds(10)));
      if (ended_) break;
      if (open_ >= ServeLoad::kMostOpen) {
        refuse(c, at, 0, "it was not sent: as many were open as the load may have");
        continue;
      }
      open.emplace_back([this, c, number, at] { ask(c, number, at); });
      while (open.size() > static_cast<std::size_t>(2 * ServeLoad::kMostOpen)) open.front().join(), open.pop_front();
    }
    for (std::thread& one : open) one.join();
  }
  // False: it was refused.
  bool ask(std::size_t c, std::uint64_t number, Clock::time_point came) {
    const LoadClass& of = load_.classes[c];
    LoadJson body{{"model", load_.model},    {"prompt", prompt_of(load_.seed + number * load_.classes.size() + c, load_.prompt_words)},
                  {"max_tokens", of.tokens}, {"ignore_eos", true},
                  {"temperature", 1},        {"seed", number & 0xffffffff},
                  {"stream", true}};
    if (!of.service_tier.empty()) body["service_tier"] = of.service_tier;
    Clock::time_point told = came;
    bool any = false;
    EventReader events([&](const std::string& data) {
      const Clock::time_point now = Clock::now();
      const std::int64_t tokens = data == "[DONE]" ? 0 : tokens_of(read_json_or_null(data));
      if (tokens == 0) return;
      count_tokens(c, tokens, any, seconds_between(told, now), now);
      any = true;
      told = now;
    });
    HttpCall call = call_at(load_.address, "POST", "/completions", load_.key);
    call.body = body.dump();
    call.timeout_seconds = kAnswerSeconds;
    call.on_data = [&](std::string_view bytes) { events.push(bytes); };
    call.stop = [this] { return ended_.load(); };
    ++open_;
    bool answered = false;
    try {
      const HttpReply reply = http_call(call);
      answered = reply.status == 200;
      if (reply.stopped) answered = true;
      else if (!answered) refuse(c, came, reply.status, reply.body.substr(0, 300));
      else finish(c, seconds_between(came, Clock::now()));
    } catch (const Error& e) {
      if (!ended_) refuse(c, came, 0, e.message());
    }
    --open_;
    return answered;
  }
  bool counts(Clock::time_point at) const { return at >= from_ && at < to_; }
  void count_tokens(std::size_t c, std::int64_t tokens, bool has_some, double seconds, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    any_answer_ = true;
    if (!counts(now)) return;
    ClassFigures& of = figures_[c];
    of.tokens += tokens;
    if (!has_some) ++of.answers;
    (has_some ? of.gap_seconds : of.first_seconds).push_back(seconds);
  }
  void finish(std::size_t c, double seconds) {
    const std::lock_guard lock(mutex_);
    if (counts(Clock::now())) figures_[c].answer_seconds.push_back(seconds);
  }
  void refuse(std::size_t c, Clock::time_point came, int status, const std::string& what) {
    const std::lock_guard lock(mutex_);
    ClassFigures& of = figures_[c];
    if (of.refusal.empty()) of.refusal = what;
    if (counts(came)) ++of.refused[status];
    // Who takes none at all is not asked to the end.
    if (!any_answer_ && status != 429 && status != 503) hopeless_ = true;
  }

  const ServeLoad& load_;
  const Clock::time_point began_, from_, to_;
  std::atomic<bool> ended_{false}, hopeless_{false};
  std::atomic<std::int64_t> open_{0};
  std::mutex mutex_;  // of both below
  std::vector<ClassFigures> figures_;
  bool any_answer_ = false;

 public:
  bool any_answer() const { return any_answer_; }
};
}  // namespace

std::vector<ClassFigures> run_serve_load(const ServeLoad& load) {
  RunningLoad running(load);
  std::vector<ClassFigures> found = running.run();
  if (running.any_answer()) return found;
  for (const ClassFigures& one : found)
    if (!one.refusal.empty()) fail(ErrorCode::io, "{}:{} gave no answer: {}", load.address.host, load.address.port, one.refusal);
  fail(ErrorCode::io, "{}:{} gave no token in {} seconds", load.address.host, load.address.port, load.warm_seconds + load.seconds);
}

double percentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  const auto at = static_cast<std::size_t>(std::ceil(percent / 100 * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(at, 1, sorted.size()) - 1];
}

}  // namespace lockstep
