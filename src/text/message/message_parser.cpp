#include "text/message/message_parser.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {
constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";
// White space before a marker is dropped with it, up to this many bytes.
constexpr std::size_t kMostSpace = 64;

template <class P>
std::size_t before(std::string_view text, std::size_t at, const P& goes) {
  const std::size_t least = at - std::min(at, kMostSpace);
  while (at > least && goes(text[at - 1])) --at;
  return at;
}

}  // namespace

MessageParser::MessageParser(MessageFormat format, const nlohmann::ordered_json& tools, bool starts_in_reasoning)
    : MessageParser(format, std::make_shared<const ArgumentTypes>(tools), starts_in_reasoning) {}

MessageParser::MessageParser(MessageFormat format, std::shared_ptr<const ArgumentTypes> types, bool starts_in_reasoning)
    : format_(tool_call_format(format)), types_(std::move(types)), in_reasoning_(starts_in_reasoning) {}

MessageDelta MessageParser::push(std::string_view text) {
  MessageDelta delta;
  pending_ += text;
  while (advance(delta, false)) {
  }
  return delta;
}

MessageDelta MessageParser::flush() {
  MessageDelta delta;
  while (advance(delta, true)) {
  }
  return delta;
}

void MessageParser::drop(std::size_t bytes) {
  constexpr std::size_t kKept = 4096;
  front_ += bytes;
  if (front_ < pending_.size() && (front_ < kKept || front_ < pending_.size() / 2)) return;
  pending_.erase(0, front_);
  front_ = 0;
}

std::string MessageParser::take(std::size_t bytes) {
  std::string part(rest().substr(0, bytes));
  drop(bytes);
  return part;
}

void MessageParser::skip() {
  const std::string_view text = rest();
  std::size_t end = 0;
  while (end < text.size() && (skip_ == Skip::newlines ? text[end] == '\n' : skip_ == Skip::spaces && is_text_space(text[end]))) ++end;
  drop(end);
  if (!rest().empty()) skip_ = Skip::nothing;
}

// One step of parsing; true if it made progress, so that another step may.
bool MessageParser::advance(MessageDelta& delta, bool ended) {
  skip();
  if (rest().empty() && state_ != State::call) return false;
  switch (state_) {
    case State::start:
      return advance_start(ended);
    case State::reasoning:
      return advance_reasoning(delta, ended);
    case State::content:
      return advance_content(delta, ended);
    case State::call:
      return advance_call(delta, ended);
    case State::json_start:
      return advance_json_start(ended);
    case State::over:
      drop(rest().size());
      return false;
  }
  return false;
}

bool MessageParser::advance_start(bool ended) {
  const std::string_view text = rest();
  const std::size_t at = std::min(count_space(text), kMostSpace);
  const Match think = at < kMostSpace ? match_word(text.substr(at), kThink) : Match::no;
  if (think == Match::maybe && !ended) return false;
  if (think == Match::yes) {
    drop(at + kThink.size());
    in_reasoning_ = true;
  }
  state_ = in_reasoning_ ? State::reasoning : behind_reasoning();
  if (in_reasoning_) skip_ = Skip::newlines;
  return true;
}

bool MessageParser::advance_reasoning(MessageDelta& delta, bool ended) {
  const auto newline = [](char c) { return c == '\n'; };
  const std::string_view text = rest();
  if (const std::size_t end = text.find(kThinkEnd); end != std::string_view::npos) {
    const std::size_t safe = before(text, end, newline);
    delta.reasoning += text.substr(0, safe);
    drop(end + kThinkEnd.size());
    state_ = behind_reasoning();
    skip_ = Skip::newlines;
    return true;
  }
  delta.reasoning += take(ended ? text.size() : before(text, partial_word(text, kThinkEnd), newline));
  return false;
}

bool MessageParser::advance_content(MessageDelta& delta, bool ended) {
  const std::string_view text = rest();
  const CallBlock* block = nullptr;
  std::size_t first = std::string_view::npos, partial = text.size();
  for (const CallBlock& one : format_.blocks) {
    partial = std::min(partial, partial_word(text, one.begin));
    if (const std::size_t at = text.find(one.begin); at < first) {
      first = at;
      block = &one;
    }
  }
  if (!block) {
    delta.content += take(ended || format_.blocks.empty() ? text.size() : before(text, partial, is_text_space));
    return false;
  }
  const std::size_t safe = before(text, first, is_text_space);
  delta.content += take(safe);
  begin_block(block->reader(*types_), first - safe + block->begin.size());
  return true;
}

// Llama: JSON objects as the whole message, perhaps with a tag in front, behind the first also with separators.
bool MessageParser::advance_json_start(bool ended) {
  const std::string_view text = rest();
  std::size_t at = 0;
  const auto space = [&] {
    while (at < text.size() && (is_text_space(text[at]) || (calls_ > 0 && text[at] == ';'))) ++at;
  };
  space();
  const Match tag = match_word(text.substr(at), kPythonTag);
  if (tag == Match::yes) {
    at += kPythonTag.size();
    space();
  } else if (tag == Match::maybe && at < text.size() && !ended) {
    return false;
  }
  if (at == text.size() && !ended && at <= kMostSpace) return false;
  if (at < text.size() && text[at] == '{' && at <= kMostSpace) {
    begin_block(make_json_call_reader(), at);
    return true;
  }
  // Behind calls, white space and separators alone are nothing.
  if (at == text.size() && calls_ > 0 && ended) drop(at);
  state_ = State::content;
  return true;
}

void MessageParser::begin_block(std::unique_ptr<CallReader> reader, std::size_t front) {
  reader_ = std::move(reader);
  unsaid_ = take(front);
  in_call_ = told_ = false;
  state_ = State::call;
}

void MessageParser::end_block(State state, Skip skip) {
  reader_.reset();
  unsaid_.clear();
  in_call_ = false;
  state_ = state;
  skip_ = skip;
}

bool MessageParser::advance_call(MessageDelta& delta, bool ended) {
  // What waits has a bound that does not depend on how the text was cut.
  const std::string_view all = rest(), text = all.substr(0, kMostCallBytes - std::min(unsaid_.size(), kMostCallBytes));
  CallStep step = reader_->step(text, ended && text.size() == all.size());
  unsaid_ += text.substr(0, step.used);
  drop(step.used);
  switch (step.kind) {
    case CallStep::Kind::skipped:
      return true;
    case CallStep::Kind::more:
      if (!ended && text.size() == all.size() && unsaid_.size() + text.size() < kMostCallBytes) return false;
      break;
    case CallStep::Kind::malformed:
      break;
    case CallStep::Kind::name:
      begin_call(delta, std::move(step.text), std::move(step.id));
      return true;
    case CallStep::Kind::arguments:
      add_arguments(delta, std::move(step.text));
      return true;
    case CallStep::Kind::call_end:
      if (!told_) {
        told_ = true;
        held_.index = calls_++;
        delta.tool_calls.push_back(std::move(held_));
      }
      in_call_ = false;
      unsaid_.clear();
      if (one_call_) end_block(State::over, Skip::nothing);
      return true;
    case CallStep::Kind::block_end:
      if (format_.format == MessageFormat::llama) end_block(State::json_start, Skip::nothing);
      else end_block(State::content, Skip::spaces);
      return true;
  }
  if (one_call_ && calls_ > 0) {
    end_block(State::over, Skip::nothing);
    return true;
  }
  if (count_space(unsaid_) < unsaid_.size()) delta.content += unsaid_;
  end_block(State::content, Skip::nothing);
  return true;
}

void MessageParser::begin_call(MessageDelta& delta, std::string name, std::string id) {
  in_call_ = true;
  told_ = types_->knows(name);
  held_ = {0, std::move(id), std::move(name), {}};
  if (!told_) return;
  held_.index = calls_++;
  delta.tool_calls.push_back(held_);
  unsaid_.clear();
}

void MessageParser::add_arguments(MessageDelta& delta, std::string text) {
  if (!told_) {
    held_.arguments += text;
    return;
  }
  unsaid_.clear();
  if (!delta.tool_calls.empty() && delta.tool_calls.back().index == held_.index) delta.tool_calls.back().arguments += text;
  else delta.tool_calls.push_back({held_.index, {}, {}, std::move(text)});
}

}  // namespace lockstep
