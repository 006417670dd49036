#include "base/ascii.h"
#include "text/message/call_reader.h"
#include "text/message/json_scanner.h"

namespace lockstep {
namespace {
using Kind = CallStep::Kind;

class TagCalls : public CallReader {
 public:
  TagCalls(const TagWords& words, const ArgumentTypes& types) : words_(words), types_(types), state_(words.function.empty() ? State::name : State::next) {}

  CallStep step(std::string_view text, bool ended) override {
    switch (state_) {
      case State::name:
        return name(text);
      case State::key:
        return key(text);
      case State::flag:
        return flag(text);
      case State::text_begin:
        return text_begin(text, ended);
      case State::text:
        return text_piece(text, ended);
      case State::value:
        return value(text);
      case State::call_end:
        state_ = State::next;
        ++calls_;
        return {Kind::call_end};
      case State::next:
      case State::parameters:
      case State::value_mark:
        break;
    }
    if (const std::size_t space = count_space(text); space > 0) return {Kind::skipped, space};
    if (state_ == State::next) return next(text, ended);
    if (state_ == State::parameters) return parameters(text);
    const Match match = match_word(text, words_.value);
    if (match == Match::yes) return to(begin_value(false), words_.value.size());
    return {match == Match::maybe ? Kind::more : Kind::malformed};
  }

 private:
  enum class State { next, name, parameters, key, flag, value_mark, text_begin, text, value, call_end };
  CallStep to(State state, std::size_t used) {
    state_ = state;
    return {Kind::skipped, used};
  }
  bool one_call() const { return words_.function.empty(); }

  CallStep next(std::string_view text, bool ended) {
    const bool over = calls_ > 0;
    if (text.empty()) return {ended && over ? Kind::block_end : Kind::more};
    const Match end = match_word(text, words_.block_end), function = one_call() ? Match::no : match_word(text, words_.function);
    if (end == Match::yes) return {over ? Kind::block_end : Kind::malformed, over ? words_.block_end.size() : 0};
    if (function == Match::yes) return to(State::name, words_.function.size());
    return {end == Match::maybe || function == Match::maybe ? Kind::more : Kind::malformed};
  }

  CallStep name(std::string_view text) {
    const std::string_view part = text.substr(0, kMostTitleBytes);
    std::size_t end = part.find(one_call() ? words_.parameter : words_.function_close), used = words_.function_close.size();
    if (one_call()) {
      end = std::min(end, part.find(words_.block_end));
      used = 0;
    }
    if (end == std::string_view::npos) return {part.size() == kMostTitleBytes ? Kind::malformed : Kind::more};
    tool_ = name_in(part.substr(0, end));
    if (tool_.empty()) return {Kind::malformed};
    state_ = State::parameters;
    arguments_ = 0;
    return {Kind::name, end + used, tool_};
  }

  CallStep parameters(std::string_view text) {
    const std::string_view end_word = one_call() ? words_.block_end : words_.function_end;
    const Match end = match_word(text, end_word), parameter = match_word(text, words_.parameter);
    if (end == Match::yes) {
      state_ = State::call_end;
      return {Kind::arguments, one_call() ? 0 : end_word.size(), arguments_ > 0 ? "}" : "{}"};
    }
    if (parameter == Match::yes) return to(State::key, words_.parameter.size());
    return {end == Match::maybe || parameter == Match::maybe ? Kind::more : Kind::malformed};
  }

  CallStep key(std::string_view text) {
    const std::string_view part = text.substr(0, kMostTitleBytes);
    const std::size_t end = part.find(words_.parameter_close);
    if (end == std::string_view::npos) return {part.size() == kMostTitleBytes ? Kind::malformed : Kind::more};
    key_ = name_in(part.substr(0, end));
    if (key_.empty()) return {Kind::malformed};
    const State state = words_.string_flag ? State::flag : words_.value.empty() ? begin_value(false) : State::value_mark;
    return to(state, end + words_.parameter_close.size());
  }

  CallStep flag(std::string_view text) {
    Match any = Match::no;
    is_json_ = false;
    for (const std::string_view word : {" string=\"true\">", " string=\"false\">", ">"}) {
      const Match match = match_word(text, word);
      if (match == Match::yes) {
        is_json_ = word.starts_with(" string=\"f");
        return to(begin_value(word.starts_with(" string=\"t")), word.size());
      }
      if (match == Match::maybe) any = Match::maybe;
    }
    return {any == Match::maybe ? Kind::more : Kind::malformed};
  }

  // A text is emitted as it arrives; any other value only when it is complete.
  State begin_value(bool is_text) { return is_text || (!is_json_ && types_.only_text(tool_, key_)) ? State::text_begin : State::value; }

  std::string opening() {
    std::string json = arguments_++ > 0 ? ", \"" : "{\"";
    append_json_inside(json, key_);
    return json + "\": ";
  }

  CallStep text_begin(std::string_view text, bool ended) {
    if (text.empty() && !ended) return {Kind::more};
    state_ = State::text;
    return {Kind::arguments, words_.newline_around && text.starts_with('\n') ? std::size_t{1} : 0, opening() + "\""};
  }

  CallStep text_piece(std::string_view text, bool ended) {
    const std::size_t end = text.find(words_.parameter_end);
    const bool whole = end != std::string_view::npos;
    std::size_t safe = whole ? end : ended ? text.size() : partial_word(text, words_.parameter_end);
    const bool newline = words_.newline_around && (whole || !ended) && safe > 0 && text[safe - 1] == '\n';  // perhaps markup
    if (newline) --safe;
    CallStep step{Kind::arguments, safe};
    append_json_inside(step.text, text.substr(0, safe));
    if (whole) {
      step.used = end + words_.parameter_end.size();
      step.text += '"';
      state_ = State::parameters;
    } else if (safe == 0) {
      step.kind = Kind::more;
    }
    return step;
  }

  CallStep value(std::string_view text) {
    const std::size_t end = text.find(words_.parameter_end);
    if (end == std::string_view::npos) return {Kind::more};
    std::string_view given = text.substr(0, end);
    if (words_.newline_around) {
      if (given.starts_with('\n')) given.remove_prefix(1);
      if (given.ends_with('\n')) given.remove_suffix(1);
    }
    state_ = State::parameters;
    const bool as_written = is_json_ && nlohmann::ordered_json::accept(given);
    return {Kind::arguments, end + words_.parameter_end.size(), opening() + (as_written ? std::string(trimmed(given)) : types_.value_json(tool_, key_, given))};
  }

  TagWords words_;
  const ArgumentTypes& types_;
  State state_;
  std::string tool_, key_;
  std::size_t arguments_ = 0, calls_ = 0;
  bool is_json_ = false;
};
}  // namespace

std::unique_ptr<CallReader> make_tag_reader(const TagWords& words, const ArgumentTypes& types) { return std::make_unique<TagCalls>(words, types); }

}  // namespace lockstep
