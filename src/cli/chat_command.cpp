// `lockstep chat`: a talk with a model in the terminal, or from a pipe.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>

#include "base/entropy.h"
#include "base/file.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "service/chat_prompt.h"
#include "service/text_stream.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

constexpr std::size_t kMostLineBytes = 1 << 20;
constexpr const char* kHelp =
    "  /help                  this text\n"
    "  /reset                 forget the talk, keep the system message\n"
    "  /system [TEXT]         show or set the system message; the talk begins anew\n"
    "  /set [NAME [VALUE]]    show or change temperature, top_p, top_k, min_p, repetition_penalty, max_tokens, seed\n"
    "  /save FILE             write the talk as JSON\n"
    "Ctrl-C stops an answer, Ctrl-D ends the program.\n";

struct Settings {
  RuntimeSettings runtime;
  std::string system, chat_template;
  double temperature = 1, top_p = 1, min_p = 0, repetition_penalty = 1;
  std::int64_t top_k = 0, max_tokens = 0;
  std::optional<std::uint64_t> seed;
};

// What the command line sets and `/set` changes.
void add_sampling_options(OptionTable& table, Settings& s) {
  table.number("temperature", &s.temperature, 0, 100, "X", "0: always the likeliest token");
  table.number("top-p", &s.top_p, 0, 1, "X", "Only the likeliest tokens that together reach this probability");
  table.integer("top-k", &s.top_k, 0, 1 << 30, "N", "Only the N likeliest tokens, 0: all");
  table.number("min-p", &s.min_p, 0, 1, "X", "Only tokens at least this share as likely as the likeliest");
  table.number("repetition-penalty", &s.repetition_penalty, 0.01, 10, "X", "Above 1: what was said becomes less likely");
  table.integer("max-tokens", &s.max_tokens, 0, 1 << 30, "N", "Tokens of an answer at most, 0: what the context leaves");
  table.seed("seed", &s.seed, "Of the random numbers (default: another one for every answer)");
}

// Lines of stdin. A signal breaks in; bytes behind the last line feed make a line too.
class LineReader {
 public:
  enum class Got { line, end, interrupt };
  Got next(std::string& line) {
    while (true) {
      if (const std::size_t at = held_.find('\n'); at != std::string::npos) {
        line = held_.substr(0, at);
        held_.erase(0, at + 1);
        if (line.ends_with('\r')) line.pop_back();
        return Got::line;
      }
      if (interrupted()) return Got::interrupt;
      if (held_.size() > kMostLineBytes) fail(ErrorCode::invalid_argument, "a line of the talk is above {} bytes", kMostLineBytes);
      char bytes[4096];
      const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof(bytes));
      if (got > 0) {
        held_.append(bytes, static_cast<std::size_t>(got));
      } else if (got == 0) {
        line = std::exchange(held_, {});
        return line.empty() ? Got::end : Got::line;
      } else if (errno == EINTR) {
        return Got::interrupt;
      } else {
        fail(ErrorCode::io, "reading stdin: {}", std::strerror(errno));
      }
    }
  }

 private:
  std::string held_;
};

class Talk {
 public:
  Talk(GenerationService& service, Settings settings)
      : service_(service), settings_(std::move(settings)), terminal_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)), colours_(isatty(STDOUT_FILENO)) {
    reset();
  }
  void run();

 private:
  void reset();
  bool command(const std::string& line);
  void set(const std::string& rest);
  void save(const std::string& path) const;
  void say(const std::string& text);
  void show(MessageDelta&& delta);
  std::string settings_text() const;

  GenerationService& service_;
  Settings settings_;
  const bool terminal_, colours_;
  Json messages_;
  std::string reasoning_, content_;
  bool in_reasoning_ = false;
};

void Talk::reset() {
  messages_ = Json::array();
  if (!settings_.system.empty()) messages_.push_back({{"role", "system"}, {"content", settings_.system}});
}

std::string Talk::settings_text() const {
  return fmt::format("temperature {}, top_p {}, top_k {}, min_p {}, repetition_penalty {}, max_tokens {}, seed {}", settings_.temperature, settings_.top_p,
                     settings_.top_k, settings_.min_p, settings_.repetition_penalty,
                     settings_.max_tokens > 0 ? std::to_string(settings_.max_tokens) : "what the context leaves",
                     settings_.seed ? std::to_string(*settings_.seed) : "another one each time");
}

void Talk::set(const std::string& rest) {
  const std::size_t space = rest.find(' ');
  const std::string name = rest.substr(0, space), value = space == std::string::npos ? "" : rest.substr(space + 1);
  if (name.empty()) {
    std::fprintf(stderr, "%s\n", settings_text().c_str());
    return;
  }
  OptionTable table("chat", "", {});
  add_sampling_options(table, settings_);
  table.set(name, value);
}

void Talk::save(const std::string& path) const {
  if (path.empty()) fail(ErrorCode::invalid_argument, "/save needs the name of a file");
  const Json json{{"model", service_.name()}, {"weights_version", service_.weights_version()}, {"profile", service_.profile_digest()}, {"messages", messages_}};
  write_file_atomic(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  std::fprintf(stderr, "saved %zu messages\n", messages_.size());
}

// Whether the line was one.
bool Talk::command(const std::string& line) {
  if (!line.starts_with('/')) return false;
  const std::size_t space = line.find(' ');
  const std::string name = line.substr(0, space), rest = space == std::string::npos ? "" : line.substr(line.find_first_not_of(' ', space));
  if (name == "/help") {
    std::fputs(kHelp, stderr);
  } else if (name == "/reset") {
    reset();
  } else if (name == "/system") {
    if (rest.empty()) {
      std::fprintf(stderr, "%s\n", settings_.system.empty() ? "there is no system message" : settings_.system.c_str());
    } else {
      settings_.system = rest;
      reset();
    }
  } else if (name == "/set") {
    set(rest);
  } else if (name == "/save") {
    save(rest);
  } else {
    fail(ErrorCode::invalid_argument, "unknown command '{}'{}; /help lists them", name.substr(0, 60),
         did_you_mean(name, {"/help", "/reset", "/system", "/set", "/save"}));
  }
  return true;
}

void Talk::show(MessageDelta&& delta) {
  const auto print = [](const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); };
  if (!delta.reasoning.empty()) {
    if (colours_ && !in_reasoning_) print("\x1b[2m");
    in_reasoning_ = true;
    print(delta.reasoning);
    reasoning_ += delta.reasoning;
  }
  if (!delta.content.empty()) {
    if (in_reasoning_) print(colours_ ? "\x1b[0m\n" : "\n");
    in_reasoning_ = false;
    print(delta.content);
    content_ += delta.content;
  }
  std::fflush(stdout);
}

void Talk::say(const std::string& text) {
  messages_.push_back({{"role", "user"}, {"content", text}});
  struct Guard {
    Json& messages;
    bool kept = false;
    ~Guard() {
      if (!kept) messages.erase(messages.size() - 1);
    }
  } guard{messages_};
  ChatTemplateInput input;
  input.messages = messages_;
  const Tokenizer& tokenizer = service_.tokenizer();
  std::vector<std::int32_t> prompt = service_.encode_chat(input);
  const RequestLimits& limits = service_.limits();
  const std::int64_t room = std::min(limits.max_positions, limits.cache_positions) - static_cast<std::int64_t>(prompt.size());
  if (room < 1)
    fail(ErrorCode::invalid_argument, "the talk has {} tokens and the context {}; /reset begins anew", prompt.size(),
         std::min(limits.max_positions, limits.cache_positions));
  Request request;
  MessageParser parser(MessageFormat::plain, Json::array(), prompt_opens_reasoning(tokenizer, prompt));
  request.prompt = std::move(prompt);
  SamplingParameters& s = request.sampling;
  s.temperature = static_cast<float>(settings_.temperature);
  s.top_p = static_cast<float>(settings_.top_p);
  s.top_k = static_cast<std::int32_t>(settings_.top_k);
  s.min_p = static_cast<float>(settings_.min_p);
  s.repetition_penalty = static_cast<float>(settings_.repetition_penalty);
  s.seed = settings_.seed.value_or(random_seed());
  s.max_tokens = static_cast<std::int32_t>(settings_.max_tokens > 0 ? std::min(settings_.max_tokens, room) : room);
  s.stop_tokens = service_.end_tokens();

  reasoning_.clear();
  content_.clear();
  in_reasoning_ = false;
  TextStream stream(tokenizer, {}, SpecialText::reasoning_marks);
  stream.begin_after(request.prompt);
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Generation> done;
  const std::vector<std::int32_t> ends = service_.end_tokens();
  const auto on_token = [&](const GeneratedToken& token) {
    if (std::find(ends.begin(), ends.end(), token.id) == ends.end()) show(parser.push(stream.push(token.id)));
    return true;
  };
  const auto on_done = [&](Generation&& generation) {
    show(parser.push(stream.flush()));
    show(parser.flush());
    const std::lock_guard lock(mutex);
    done = std::move(generation);
    changed.notify_all();
  };
  const std::uint64_t id = service_.generate(std::move(request), on_token, on_done);
  bool stopped = false;
  {
    std::unique_lock lock(mutex);
    while (!done) {
      changed.wait_for(lock, std::chrono::milliseconds(50));
      if (done || stopped || !interrupted()) continue;
      stopped = true;
      if (interrupt_signal() == SIGINT) clear_interrupt();
      lock.unlock();
      service_.cancel(id);
      lock.lock();
    }
  }
  if (in_reasoning_ && colours_) std::fputs("\x1b[0m", stdout);
  std::fputs("\n", stdout);
  std::fflush(stdout);
  if (stopped) std::fputs("(stopped)\n", stderr);
  if (done->finish == FinishReason::error) fail(ErrorCode::numeric, "the answer failed after {} tokens: {}", done->tokens.size(), done->error);
  if (done->finish == FinishReason::length && settings_.max_tokens == 0) std::fputs("(the context is full; /reset begins anew)\n", stderr);
  Json answer{{"role", "assistant"}, {"content", content_}};
  if (!reasoning_.empty()) answer["reasoning_content"] = reasoning_;
  messages_.push_back(std::move(answer));
  guard.kept = true;
}

void Talk::run() {
  if (terminal_) std::fprintf(stderr, "%s; /help lists the commands, Ctrl-D ends\n", service_.name().c_str());
  LineReader lines;
  std::string line;
  while (true) {
    if (terminal_) {
      std::fputs("> ", stdout);
      std::fflush(stdout);
    }
    const LineReader::Got got = lines.next(line);
    if (got == LineReader::Got::end) break;
    if (got == LineReader::Got::interrupt) {
      if (interrupt_signal() != SIGINT) throw_if_interrupted();
      clear_interrupt();
      std::fputs("\n", stdout);
      if (terminal_) std::fputs("Ctrl-D ends the program\n", stderr);
      continue;
    }
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    try {
      if (!command(line)) say(line);
    } catch (const Error& e) {
      if (!terminal_) throw;  // a script learns of it by the exit status
      std::fprintf(stderr, "error: %s\n", e.what());
    }
    if (interrupt_signal() != 0 && interrupt_signal() != SIGINT) throw_if_interrupted();
  }
  if (terminal_) std::fputs("\n", stdout);
}
}  // namespace

int chat_command(const Arguments& arguments) {
  Settings s;
  OptionTable table("chat", "A talk with a chat model: a line in, an answer out, as it comes. Ctrl-C stops an answer, Ctrl-D ends; /help lists commands.",
                    {"lockstep chat --model DIR", "lockstep chat --model DIR --system \"Answer briefly.\" --temperature 0.7",
                     "lockstep chat --model DIR --seed 1 < questions.txt"});
  table.text("system", &s.system, "TEXT", "The system message");
  add_sampling_options(table, s);
  table.text("chat-template", &s.chat_template, "FILE", "A Jinja template instead of the model's");
  add_runtime_options(table, s.runtime);
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;
  install_interrupt_handlers();
  const OpenedModel opened = open_model(s.runtime);
  ServingModel model = serving_model(opened);
  add_chat(model, s.runtime.model, s.chat_template);
  if (!model.tokenizer || !model.chat_template)
    fail(ErrorCode::unsupported, "'{}' has no {}, so there is no way to talk with it; `lockstep generate` continues a text", s.runtime.model,
         model.tokenizer ? "chat template" : "tokenizer.json");
  GenerationService service(std::move(model), {.max_open = 1});
  Talk(service, std::move(s)).run();
  return kExitOk;
}

}  // namespace lockstep
