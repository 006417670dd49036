#include "serving/draft_evaluation.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/error.h"
#include "base/seconds.h"

namespace lockstep {

namespace {
// Shared with the callbacks, which may outlive an interrupted call.
struct Answers {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Generation> all;
  std::size_t open = 0;
};

std::vector<Generation> answers_to(GenerationService& service, const std::vector<Request>& requests, std::int64_t at_once, const StopToken& stop) {
  const auto answers = std::make_shared<Answers>();
  answers->all.resize(requests.size());
  const std::int64_t most = std::clamp<std::int64_t>(at_once, 1, service.bounds().max_open());
  for (std::size_t begin = 0; begin < requests.size(); begin += static_cast<std::size_t>(most)) {
    const std::size_t end = std::min(requests.size(), begin + static_cast<std::size_t>(most));
    const std::vector<Request> some(requests.begin() + static_cast<std::ptrdiff_t>(begin), requests.begin() + static_cast<std::ptrdiff_t>(end));
    answers->open = some.size();
    const std::vector<std::uint64_t> ids = service.generate_all(
        some, [](const OnExecutor&, std::size_t, const GeneratedToken&) { return true; },
        [answers, begin](const OnExecutor&, std::size_t i, Generation&& answer) {
          const std::lock_guard lock(answers->mutex);
          answers->all[begin + i] = std::move(answer);
          --answers->open;
          answers->changed.notify_all();
        });
    std::unique_lock lock(answers->mutex);
    while (answers->open > 0) {
      answers->changed.wait_for(lock, std::chrono::milliseconds(100));
      if (!stop.stopped()) continue;
      lock.unlock();
      for (const std::uint64_t id : ids) service.cancel(id);
      stop.throw_if_stopped();
      lock.lock();
    }
  }
  for (std::size_t i = 0; i < answers->all.size(); ++i)
    if (answers->all[i].finish == FinishReason::error)
      fail(ErrorCode::numeric, "the answer to prompt {} failed after {} tokens: {}", i + 1, answers->all[i].tokens.size(), answers->all[i].error);
  return std::move(answers->all);
}

void add(DraftCounters& all, const DraftCounters& one) {
  all.drafts += one.drafts;
  all.tokens += one.tokens;
  all.accepted += one.accepted;
  for (std::size_t k = 0; k < one.accepted_at.size(); ++k) all.accepted_at[k] += one.accepted_at[k];
  for (std::size_t k = 0; k < kDraftKinds; ++k) all.tokens_of[k] += one.tokens_of[k], all.accepted_of[k] += one.accepted_of[k];
}
}  // namespace

double DraftEvaluation::accepted_length() const {
  return drafts.drafts > 0 ? 1 + static_cast<double>(drafts.accepted) / static_cast<double>(drafts.drafts) : 0.0;
}

double DraftEvaluation::accepted_share(std::size_t place) const {
  return drafts.drafts > 0 ? static_cast<double>(drafts.accepted_at[place]) / static_cast<double>(drafts.drafts) : 0.0;
}

std::int64_t different_tokens(const Generation& a, const Generation& b) {
  const std::size_t both = std::min(a.tokens.size(), b.tokens.size());
  auto different = static_cast<std::int64_t>(std::max(a.tokens.size(), b.tokens.size()) - both);
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  for (std::size_t i = 0; i < both; ++i) {
    const GeneratedToken &x = a.tokens[i], &y = b.tokens[i];
    different += x.id != y.id || bits(x.raw_logprob) != bits(y.raw_logprob) || bits(x.sampling_logprob) != bits(y.sampling_logprob);
  }
  return different;
}

DraftEvaluation evaluate_drafts(GenerationService& without, GenerationService& with, const std::vector<Request>& requests, std::int64_t at_once,
                                const StopToken& stop) {
  DraftEvaluation evaluation;
  const auto timed = [&](GenerationService& service, double& seconds, std::int64_t& forwards) {
    const std::int64_t before = service.counters().forwards;
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Generation> answers = answers_to(service, requests, at_once, stop);
    seconds = seconds_since(begin);
    forwards = service.counters().forwards - before;
    return answers;
  };
  const std::vector<Generation> wanted = timed(without, evaluation.seconds_without, evaluation.forwards_without);
  const std::vector<Generation> drafted = timed(with, evaluation.seconds_with, evaluation.forwards_with);
  evaluation.prompts = std::ssize(requests);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    evaluation.tokens += std::ssize(wanted[i].tokens);
    evaluation.different += different_tokens(wanted[i], drafted[i]);
    add(evaluation.drafts, drafted[i].drafts);
  }
  return evaluation;
}

}  // namespace lockstep
