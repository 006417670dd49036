// `lockstep chat`: a conversation with a model in the terminal, or from a pipe.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/file.h"
#include "base/signals.h"
#include "cli/chat_lines.h"
#include "cli/chat_model.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/shipped.h"

namespace lockstep {
namespace {
using Json = ChatModel::Json;

constexpr const char* kHelp =
    "  /help                  this text\n"
    "  /reset, /clear         forget the talk, keep the system message\n"
    "  /system [TEXT]         show or set the system message; the talk begins anew\n"
    "  /set [NAME [VALUE]]    show or change temperature, top_p, top_k, min_p, repetition_penalty, max_tokens, seed\n"
    "  /save FILE             write the talk as JSON\n"
    "  /exit, /quit, /bye     end the program, as Ctrl-D does\n"
    "A line that begins with / is a command; behind a blank it is said.\n"
    "Ctrl-C stops an answer. In a terminal the arrow keys edit the line and bring back earlier ones, which are kept until the end alone.\n";

// What the command line sets and `/set` changes.
void add_sampling_options(OptionTable& table, ChatSettings& s) {
  const auto otherwise = [](const char* value) { return fmt::format("what generation_config.json says, else {}; of a server: its own", value); };
  table.number("temperature", &s.temperature, 0, 100, "X", "Sampling temperature; 0: always the likeliest token", otherwise("0.7"));
  table.number("top-p", &s.top_p, 0, 1, "X", "Sample from the likeliest tokens that together reach this probability", otherwise("0.9"));
  table.integer("top-k", &s.top_k, 0, 1 << 30, "N", "Sample from the N likeliest tokens, 0: all", otherwise("0"));
  table.number("min-p", &s.min_p, 0, 1, "X", "Sample from tokens at least this share as likely as the likeliest", otherwise("0"));
  table.number("repetition-penalty", &s.repetition_penalty, 0.01, 10, "X", "Above 1: makes tokens that were said less likely", otherwise("1"));
  table.integer("max-tokens", &s.max_tokens, 0, 1 << 30, "N", "Most tokens of an answer, 0: what the context leaves");
  table.seed("seed", &s.seed, "Of the random numbers (default: another one for every answer)");
}

class Talk {
 public:
  Talk(ChatModel& model, ChatSettings settings, std::string system)
      : model_(model),
        settings_(std::move(settings)),
        system_(std::move(system)),
        terminal_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)),
        colours_(isatty(STDOUT_FILENO)) {
    reset();
  }
  void run();

 private:
  void reset();
  bool command(const std::string& line);
  bool over_ = false;  // /exit
  void set(const std::string& rest);
  void save(const std::string& path) const;
  void say(const std::string& text);
  void show(const std::string& reasoning, const std::string& content);
  std::string settings_text() const;

  ChatModel& model_;
  ChatSettings settings_;
  std::string system_;
  const bool terminal_, colours_;
  Json messages_;
  std::string reasoning_, content_;
  bool in_reasoning_ = false;
};

void Talk::reset() {
  messages_ = Json::array();
  if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
}

std::string Talk::settings_text() const {
  const std::optional<ChatSettings> usual = model_.usual();
  const auto text = [&](const auto& given, const auto& otherwise) {
    return given       ? fmt::format("{:.6g}", static_cast<double>(*given))
           : otherwise ? fmt::format("{:.6g}", static_cast<double>(*otherwise))
                       : std::string("the server's own");
  };
  const ChatSettings none, &u = usual ? *usual : none;
  return fmt::format("temperature {}, top_p {}, top_k {}, min_p {}, repetition_penalty {}, max_tokens {}, seed {}", text(settings_.temperature, u.temperature),
                     text(settings_.top_p, u.top_p), text(settings_.top_k, u.top_k), text(settings_.min_p, u.min_p),
                     text(settings_.repetition_penalty, u.repetition_penalty),
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
  table.rows().set(name, value);
}

void Talk::save(const std::string& path) const {
  if (path.empty()) fail(ErrorCode::invalid_argument, "/save needs the name of a file");
  Json json = model_.about();
  json["messages"] = messages_;
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, error)))
    fail(ErrorCode::already_exists, "'{}' exists, and /save writes over nothing; name another file", path);
  write_output_file(path, text, Overwrite::no);
  std::fprintf(stderr, "saved %zu messages\n", messages_.size());
}

// Whether the line was one.
bool Talk::command(const std::string& line) {
  if (!line.starts_with('/')) return false;
  const std::size_t space = line.find(' ');
  const std::string name = line.substr(0, space), rest = space == std::string::npos ? "" : line.substr(line.find_first_not_of(' ', space));
  if (name == "/help") {
    std::fputs(kHelp, stderr);
  } else if (name == "/reset" || name == "/clear") {
    reset();
  } else if (name == "/system") {
    if (rest.empty()) {
      std::fprintf(stderr, "%s\n", system_.empty() ? "there is no system message" : system_.c_str());
    } else {
      system_ = rest;
      reset();
    }
  } else if (name == "/set") {
    set(rest);
  } else if (name == "/save") {
    save(rest);
  } else if (name == "/exit" || name == "/quit" || name == "/bye") {
    over_ = true;
  } else {
    fail(ErrorCode::invalid_argument, "unknown command '{}'{}; /help lists them", name.substr(0, 60),
         did_you_mean(name, {"/help", "/reset", "/clear", "/system", "/set", "/save", "/exit", "/quit", "/bye"}));
  }
  return true;
}

void Talk::show(const std::string& reasoning, const std::string& content) {
  const auto print = [](const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); };
  if (!reasoning.empty()) {
    if (colours_ && !in_reasoning_) print("\x1b[2m");
    in_reasoning_ = true;
    print(reasoning);
    reasoning_ += reasoning;
  }
  if (!content.empty()) {
    if (in_reasoning_) print(colours_ ? "\x1b[0m\n" : "\n");
    in_reasoning_ = false;
    print(content);
    content_ += content;
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
  reasoning_.clear();
  content_.clear();
  in_reasoning_ = false;
  const auto end_line = [&] {
    if (in_reasoning_ && colours_) std::fputs("\x1b[0m", stdout);
    std::fputs("\n", stdout);
    std::fflush(stdout);
  };
  ChatModel::End end;
  try {
    end = model_.answer(messages_, settings_, [this](const std::string& reasoning, const std::string& content) { show(reasoning, content); });
  } catch (...) {
    if (!reasoning_.empty() || !content_.empty()) end_line();
    throw;
  }
  end_line();
  if (end == ChatModel::End::stopped) {
    if (interrupt_signal() == SIGINT) clear_interrupt();
    std::fputs("(stopped)\n", stderr);
  }
  if (end == ChatModel::End::length && settings_.max_tokens == 0) std::fputs("(the context is full; /reset begins anew)\n", stderr);
  Json answer{{"role", "assistant"}, {"content", content_}};
  if (!reasoning_.empty()) answer["reasoning_content"] = reasoning_;
  messages_.push_back(std::move(answer));
  guard.kept = true;
}

void Talk::run() {
  if (terminal_) std::fprintf(stderr, "%s; /help lists the commands, Ctrl-D ends\n", model_.name().c_str());
  const std::unique_ptr<ChatLines> lines = terminal_ ? terminal_lines("> ") : piped_lines();
  std::string line;
  while (!over_) {
    const ChatLines::Got got = lines->next(line);
    if (got == ChatLines::Got::end) break;
    if (got == ChatLines::Got::interrupt) {
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

// A model of some gigabytes takes a while: a terminal is told, until it is there.
std::unique_ptr<ChatModel> loaded(const RuntimeSettings& runtime, const std::string& chat_template, const std::string& generation_config,
                                  const DraftOptions& drafts) {
  const bool told = isatty(STDERR_FILENO);
  if (told) std::fprintf(stderr, "loading %s ...", runtime.model.c_str());
  const auto begin = std::chrono::steady_clock::now();
  try {
    std::unique_ptr<ChatModel> model = local_chat_model(runtime, chat_template, generation_config, drafts);
    if (told)
      std::fprintf(stderr, "\rloaded %s in %.1f s\n", runtime.model.c_str(), std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return model;
  } catch (...) {
    if (told) std::fputs("\n", stderr);
    throw;
  }
}
}  // namespace

int chat_command(const Arguments& arguments) {
  ChatSettings s;
  RuntimeSettings runtime;
  std::string system, chat_template, url, key, generation_config = "auto";
  DraftOptions drafts;
  OptionTable table("chat", "A conversation with a chat model: type a line, and the answer streams. Ctrl-C stops an answer, Ctrl-D ends; /help lists commands.",
                    {"lockstep chat --model DIR", "lockstep chat --model DIR --system \"Answer briefly.\" --temperature 0.7",
                     "lockstep chat --model DIR --seed 1 < questions.txt", "lockstep chat --url http://127.0.0.1:8080"});
  table.input("model", &runtime.model, "DIR",
              "Model folder (Hugging Face) or GGUF file; with --url the model's name there (default: the first that the server tells of)");
  table.text("url", &url, "URL", "Talk with a server of OpenAI's API instead: http://HOST:PORT or https://HOST:PORT");
  table.text("api-key", &key, "KEY", "API key for the server; LOCKSTEP_API_KEY keeps it out of process lists").command_line_only();
  table.text("system", &system, "TEXT", "The system message");
  add_sampling_options(table, s);
  table.input("chat-template", &chat_template, "FILE", "A Jinja template instead of the model's");
  table.choice("generation-config", &generation_config, {"auto", "none"},
               "Whether the model's generation_config.json says what is not given here, and what ends a turn");
  add_draft_options(table, drafts);
  add_device_options(table, runtime);
  table.refused("with --url", [&url] { return !url.empty(); },
                {"generation-config", "speculate", "draft-tokens", "acceptance", "profile", "threads", "device", "backend", "isa", "mla-norm-eps", "context"});
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;
  if (url.empty() && runtime.model.empty()) throw UsageError("--model DIR is missing, or --url URL");
  if (url.empty() && !key.empty()) throw UsageError("--api-key is for --url");
  if (!url.empty() && !chat_template.empty()) throw UsageError("--chat-template is for a model folder; a server has its own");
  install_interrupt_handlers();
  key = given_key(key);
  if (url.empty()) runtime.model = shipped("models", runtime.model);
  const std::unique_ptr<ChatModel> model = url.empty() ? loaded(runtime, chat_template, generation_config, drafts) : remote_chat_model(url, key, runtime.model);
  Talk(*model, std::move(s), std::move(system)).run();
  return kExitOk;
}

}  // namespace lockstep
