#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "text/message/call_reader.h"
#include "text/message/json_scanner.h"

namespace lockstep {
namespace {
using Kind = CallStep::Kind;
using nlohmann::ordered_json;

std::string decoded(const std::string& quoted) {
  const ordered_json json = ordered_json::parse(quoted, nullptr, false);
  return json.is_string() ? json.get<std::string>() : "";
}

// The name is emitted when the arguments begin: an object with a name and no arguments is no call.
class JsonCall : public CallReader {
 public:
  CallStep step(std::string_view text, bool) override {
    if (broken_) return {Kind::malformed};
    if (scanner_.done()) {
      if (!told_) return {Kind::malformed};
      return {std::exchange(ended_, true) ? Kind::block_end : Kind::call_end};
    }
    if (!name_.empty() && has_arguments_ && !std::exchange(told_, true)) return {Kind::name, 0, name_};
    if (told_ && !waiting_.empty()) return {Kind::arguments, 0, std::exchange(waiting_, {})};
    std::size_t used = 0;
    std::string passed;
    while (used < text.size() && !scanner_.done() && !broken_) {
      if (!feed(text[used], passed)) {
        broken_ = true;
        break;
      }
      ++used;
      if (!name_.empty() && has_arguments_ && !told_) break;
    }
    if (told_ && !passed.empty()) return {Kind::arguments, used, std::move(passed)};
    waiting_ += passed;
    if (used > 0) return {Kind::skipped, used};
    return {broken_ ? Kind::malformed : Kind::more};
  }

 private:
  enum class Member { other, key, name, object, text };

  // One character; what belongs to the arguments is added to `passed`. False: it cannot stand here.
  bool feed(char c, std::string& passed) {
    const JsonScanner::Next before = scanner_.next();
    const std::size_t depth = scanner_.depth();
    const bool in_string = scanner_.in_string();
    if (!scanner_.feed(c)) return false;
    if (depth == 0 && scanner_.depth() == 0) return scanner_.next() == JsonScanner::Next::value;  // white space in front; else no object
    if (depth == 0 && c != '{') return false;
    if (depth == 1 && before == JsonScanner::Next::key && c == '"') {
      member_ = Member::key;
      token_.clear();
    } else if (depth == 1 && before == JsonScanner::Next::value && !is_text_space(c)) {
      if (!begin_value(c)) return false;
    }
    if (member_ == Member::key || member_ == Member::name || member_ == Member::text) append_json_character(token_, c, in_string);
    if (member_ == Member::object) append_json_character(passed, c, in_string);
    if (scanner_.depth() != 1) return true;
    if (member_ == Member::key && scanner_.next() == JsonScanner::Next::colon) {
      key_ = decoded(token_);
      member_ = Member::other;
    } else if (scanner_.next() == JsonScanner::Next::separator && member_ != Member::other) {
      return end_value(passed);
    }
    return true;
  }

  bool begin_value(char c) {
    member_ = Member::other;
    token_.clear();
    if (key_ == "name" && name_.empty()) {
      member_ = Member::name;
      return c == '"';
    }
    if ((key_ != "arguments" && key_ != "parameters") || has_arguments_) return true;
    member_ = c == '{' ? Member::object : Member::text;
    has_arguments_ = c == '{';
    return c == '{' || c == '"';
  }

  bool end_value(std::string& passed) {
    const Member member = std::exchange(member_, Member::other);
    if (member == Member::name) {
      name_ = decoded(token_);
      return !name_.empty();
    }
    if (member != Member::text) return true;
    // Some models write the arguments' JSON as a text.
    const std::string inner = decoded(token_);
    if (!inner.starts_with('{') || !ordered_json::accept(inner)) return false;
    passed += inner;
    has_arguments_ = true;
    return true;
  }

  JsonScanner scanner_;
  Member member_ = Member::other;
  std::string key_, token_, name_;
  std::string waiting_;  // arguments that came before the name was told
  bool has_arguments_ = false, told_ = false, broken_ = false, ended_ = false;
};

class JsonBlock : public CallReader {
 public:
  JsonBlock(std::string_view end, bool list) : end_(end), list_(list), state_(list ? State::front : State::call) {}

  CallStep step(std::string_view text, bool ended) override {
    if (state_ == State::call) {
      CallStep step = call_->step(text, ended);
      if (step.kind != Kind::block_end) return step;
      call_ = std::make_unique<JsonCall>();
      state_ = list_ ? State::item_end : State::end;
      return {Kind::skipped, step.used};
    }
    if (const std::size_t space = count_space(text); space > 0) return {Kind::skipped, space};
    if (text.empty()) return {ended && state_ != State::front ? Kind::block_end : Kind::more};
    switch (state_) {
      case State::front:
        if (text[0] != '[') return {Kind::malformed};
        state_ = State::call;
        return {Kind::skipped, 1};
      case State::item_end:
        if (text[0] != ',' && text[0] != ']') return {Kind::malformed};
        state_ = text[0] == ',' ? State::call : State::end;
        return {Kind::skipped, 1};
      case State::call:
      case State::end:
        break;
    }
    const Match match = match_word(text, end_);
    if (match == Match::yes) return {Kind::block_end, end_.size()};
    return {match == Match::maybe ? Kind::more : Kind::malformed};
  }

 private:
  enum class State { front, call, item_end, end };
  std::string_view end_;
  bool list_;
  State state_;
  std::unique_ptr<JsonCall> call_ = std::make_unique<JsonCall>();
};

// Arguments stand behind a marker and are passed on as they are.
class MarkedCalls : public CallReader {
 public:
  explicit MarkedCalls(const MarkedWords& words) : words_(words) {}

  CallStep step(std::string_view text, bool ended) override {
    if (broken_) return {Kind::malformed};
    switch (state_) {
      case State::title:
        return title(text);
      case State::style:
        return style(text);
      case State::fence:
        return fence(text);
      case State::arguments:
        return arguments(text);
      case State::next:
      case State::fence_end:
      case State::call_end:
        break;
    }
    if (const std::size_t space = count_space(text); space > 0) return {Kind::skipped, space};
    if (text.empty()) return {ended && state_ == State::next && calls_ > 0 ? Kind::block_end : Kind::more};
    if (state_ == State::next) {
      const Match begin = match_word(text, words_.begin), end = match_word(text, words_.block_end);
      if (begin == Match::yes) return to(State::title, words_.begin.size());
      if (end == Match::yes) return {calls_ > 0 ? Kind::block_end : Kind::malformed, calls_ > 0 ? words_.block_end.size() : 0};
      return {begin == Match::maybe || end == Match::maybe ? Kind::more : Kind::malformed};
    }
    const bool fence = state_ == State::fence_end;
    const std::string_view word = fence ? std::string_view("```") : words_.end;
    const Match match = match_word(text, word);
    if (match != Match::yes) return {match == Match::maybe ? Kind::more : Kind::malformed};
    if (fence) return to(State::call_end, word.size());
    state_ = State::next;
    ++calls_;
    return {Kind::call_end, word.size()};
  }

 private:
  enum class State { next, title, style, fence, arguments, fence_end, call_end };
  CallStep to(State state, std::size_t used) {
    state_ = state;
    return {Kind::skipped, used};
  }
  CallStep named(std::string name, std::size_t used, std::string id = {}) {
    if (name.empty()) return {Kind::malformed};
    state_ = State::arguments;
    scanner_ = {};
    return {Kind::name, used, std::move(name), std::move(id)};
  }

  CallStep title(std::string_view text) {
    const std::string_view part = text.substr(0, kMostTitleBytes);
    const std::size_t end = part.find(words_.separator);
    if (end == std::string_view::npos) return {part.size() == kMostTitleBytes ? Kind::malformed : Kind::more};
    const std::size_t used = end + words_.separator.size();
    std::string_view title = trimmed(part.substr(0, end));
    fenced_ = false;
    if (words_.fence && title == "function") return to(State::style, used);
    if (!words_.id_title) return named(name_in(title), used);
    std::string id(title);
    if (title.starts_with("functions.")) title.remove_prefix(10);
    if (const std::size_t colon = title.rfind(':');
        colon != std::string_view::npos && title.find_first_not_of("0123456789", colon + 1) == std::string_view::npos)
      title = title.substr(0, colon);
    return named(name_in(title), used, std::move(id));
  }

  // Behind the title `function`: that is the name itself where an object follows.
  CallStep style(std::string_view text) {
    if (const std::size_t space = count_space(text); space > 0) return {Kind::skipped, space};
    if (text.empty()) return {Kind::more};
    if (text[0] == '{') return named("function", 0);
    fenced_ = true;
    return to(State::fence, 0);
  }

  CallStep fence(std::string_view text) {
    constexpr std::string_view kFence = "```json";
    const std::string_view part = text.substr(0, kMostTitleBytes);
    const std::size_t end = part.find(kFence);
    if (end == std::string_view::npos) return {part.size() == kMostTitleBytes ? Kind::malformed : Kind::more};
    return named(name_in(part.substr(0, end)), end + kFence.size());
  }

  CallStep arguments(std::string_view text) {
    std::size_t used = 0;
    std::string passed;
    while (used < text.size() && !scanner_.done()) {
      const char c = text[used];
      const bool in_string = scanner_.in_string(), outside = scanner_.depth() == 0;
      if ((outside && c != '{' && !is_text_space(c)) || !scanner_.feed(c)) {
        broken_ = true;
        break;
      }
      if (!outside || c == '{') append_json_character(passed, c, in_string);
      ++used;
    }
    if (scanner_.done()) state_ = fenced_ ? State::fence_end : State::call_end;
    if (!passed.empty()) return {Kind::arguments, used, std::move(passed)};
    if (used > 0) return {Kind::skipped, used};
    return {broken_ ? Kind::malformed : Kind::more};
  }

  MarkedWords words_;
  State state_ = State::next;
  JsonScanner scanner_;
  std::size_t calls_ = 0;
  bool fenced_ = false, broken_ = false;
};
}  // namespace

std::unique_ptr<CallReader> make_json_call_reader() { return std::make_unique<JsonCall>(); }
std::unique_ptr<CallReader> make_json_block_reader(std::string_view end, bool list) { return std::make_unique<JsonBlock>(end, list); }
std::unique_ptr<CallReader> make_marked_reader(const MarkedWords& words) { return std::make_unique<MarkedCalls>(words); }

}  // namespace lockstep
