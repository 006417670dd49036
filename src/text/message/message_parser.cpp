#include "text/message/message_parser.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace lockstep {
namespace {
constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>", kPythonTag = "<|python_tag|>";
// White space in front of a marker goes with it, up to so much.
constexpr std::size_t kMostSpace = 64;

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// Where the longest end of `text` begins that could become one of `markers` with more text; its size when there is none.
std::size_t partial_marker(std::string_view text, const std::vector<std::string_view>& markers) {
  std::size_t longest = 0;
  for (const std::string_view marker : markers) longest = std::max(longest, marker.size());
  for (std::size_t at = text.size() - std::min(text.size(), longest - (longest > 0)); at < text.size(); ++at)
    for (const std::string_view marker : markers)
      if (text.size() - at < marker.size() && marker.starts_with(text.substr(at))) return at;
  return text.size();
}

template <class P>
std::size_t before(std::string_view text, std::size_t at, const P& goes) {
  const std::size_t least = at - std::min(at, kMostSpace);
  while (at > least && goes(text[at - 1])) --at;
  return at;
}

std::string call_id(std::size_t index, const ParsedCall& call) {
  // The same message has the same ids; calls of different turns hardly ever share one.
  std::uint64_t hash = 0xCBF29CE484222325u ^ index;
  for (const std::string* part : {&call.name, &call.arguments})
    for (const char c : *part) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return fmt::format("call_{}_{:016x}", index, hash);
}
}  // namespace

MessageParser::MessageParser(MessageFormat format, const nlohmann::ordered_json& tools, bool starts_in_reasoning)
    : format_(tool_call_format(format)), types_(tools), in_reasoning_(starts_in_reasoning) {}

MessageDelta MessageParser::push(std::string_view text) {
  MessageDelta delta;
  pending_ += text;
  while (advance(delta, false)) {}
  return delta;
}

MessageDelta MessageParser::flush() {
  MessageDelta delta;
  while (advance(delta, true)) {}
  return delta;
}

std::string MessageParser::take(std::size_t bytes) {
  std::string part = pending_.substr(0, bytes);
  pending_.erase(0, bytes);
  return part;
}

void MessageParser::skip() {
  std::size_t end = 0;
  while (end < pending_.size() && (skip_ == Skip::newlines ? pending_[end] == '\n' : skip_ == Skip::spaces && is_space(pending_[end]))) ++end;
  pending_.erase(0, end);
  if (!pending_.empty()) skip_ = Skip::nothing;
}

// Each step: true when it got on and another may follow.
bool MessageParser::advance(MessageDelta& delta, bool ended) {
  skip();
  if (pending_.empty()) return false;
  switch (state_) {
    case State::start: return advance_start(ended);
    case State::reasoning: return advance_reasoning(delta, ended);
    case State::content: return advance_content(delta, ended);
    case State::call: return advance_call(delta, ended);
    case State::json_start: case State::json: return advance_json(delta, ended);
  }
  return false;
}

bool MessageParser::advance_start(bool ended) {
  std::size_t at = 0;
  while (at < pending_.size() && at < kMostSpace && is_space(pending_[at])) ++at;
  const std::string_view rest = std::string_view(pending_).substr(at);
  if (at < kMostSpace && rest.starts_with(kThink)) {
    pending_.erase(0, at + kThink.size());
    in_reasoning_ = true;
  } else if (!ended && kThink.starts_with(rest) && at < kMostSpace) {
    return false;
  }
  state_ = in_reasoning_ ? State::reasoning : format_.format == MessageFormat::llama ? State::json_start : State::content;
  if (in_reasoning_) skip_ = Skip::newlines;
  return true;
}

bool MessageParser::advance_reasoning(MessageDelta& delta, bool ended) {
  const auto newline = [](char c) { return c == '\n'; };
  if (const std::size_t end = pending_.find(kThinkEnd); end != std::string::npos) {
    const std::size_t text = before(pending_, end, newline);
    delta.reasoning += take(text);
    pending_.erase(0, end - text + kThinkEnd.size());
    state_ = format_.format == MessageFormat::llama ? State::json_start : State::content;
    skip_ = Skip::newlines;
    return true;
  }
  const std::size_t safe = ended ? pending_.size() : before(pending_, partial_marker(pending_, {kThinkEnd}), newline);
  delta.reasoning += take(safe);
  return false;
}

bool MessageParser::advance_content(MessageDelta& delta, bool ended) {
  std::size_t first = std::string::npos;
  std::vector<std::string_view> markers;
  for (const CallBlock& block : format_.blocks) {
    markers.push_back(block.begin);
    if (const std::size_t at = pending_.find(block.begin); at < first) {
      first = at;
      block_ = &block;
    }
  }
  if (first == std::string::npos) {
    const std::size_t safe = ended || markers.empty() ? pending_.size() : before(pending_, partial_marker(pending_, markers), is_space);
    delta.content += take(safe);
    return false;
  }
  const std::size_t text = before(pending_, first, is_space);
  delta.content += take(text);
  marker_ = first - text;
  searched_ = marker_ + block_->begin.size();
  strings_ = {};
  state_ = State::call;
  return true;
}

std::size_t MessageParser::call_end() {
  const std::size_t body = marker_ + block_->begin.size();
  const std::string_view text = pending_;
  std::size_t front = body;
  while (front < text.size() && is_space(text[front])) ++front;
  const bool json = block_->may_be_json && front < text.size() && (text[front] == '{' || text[front] == '[');
  if (!json) {
    const std::size_t found = text.find(block_->end, searched_);
    if (found == std::string_view::npos) searched_ = std::max(body, text.size() - std::min(text.size(), block_->end.size() - 1));
    return found;
  }
  for (; searched_ < text.size(); ++searched_) {
    const char c = text[searched_];
    if (strings_.takes(c)) continue;
    if (c == block_->end[0]) {
      const std::string_view rest = text.substr(searched_);
      if (rest.starts_with(block_->end)) return searched_;
      if (block_->end.starts_with(rest)) return std::string_view::npos;  // maybe: more text decides
    }
  }
  return std::string_view::npos;
}

bool MessageParser::advance_call(MessageDelta& delta, bool ended) {
  const std::size_t end = call_end();
  const bool closed = end != std::string::npos;
  const std::size_t size = closed ? end + block_->end.size() : pending_.size();
  if (size > kMostCallBytes) {
    too_long(delta);
    return true;
  }
  if (!closed && !ended) return false;
  const std::size_t body = marker_ + block_->begin.size();
  std::optional<std::vector<ParsedCall>> calls;
  if (closed || !block_->needs_end) calls = block_->parse(std::string_view(pending_).substr(body, (closed ? end : size) - body), types_);
  std::string raw = take(size);
  state_ = State::content;
  if (calls) {
    emit(std::move(*calls), delta);
    skip_ = Skip::spaces;
  } else {
    delta.content += raw;
  }
  return true;
}

// What has become too long for a call is content; the cut does not depend on how the text arrived.
void MessageParser::too_long(MessageDelta& delta) {
  std::size_t cut = kMostCallBytes;
  while (cut > 0 && (static_cast<unsigned char>(pending_[cut]) & 0xC0) == 0x80) --cut;
  delta.content += take(cut);
  state_ = State::content;
}

// Llama: JSON objects as the whole message.
bool MessageParser::advance_json(MessageDelta& delta, bool ended) {
  if (state_ == State::json_start) {
    std::size_t at = 0;
    const auto space = [&] {
      while (at < pending_.size() && (is_space(pending_[at]) || (calls_ > 0 && pending_[at] == ';'))) ++at;
    };
    space();
    const std::string_view rest = std::string_view(pending_).substr(at);
    if (rest.starts_with(kPythonTag)) {
      at += kPythonTag.size();
      space();
    } else if (!ended && !rest.empty() && kPythonTag.starts_with(rest)) {
      return false;
    }
    if (at == pending_.size() && !ended && at <= kMostSpace) return false;
    if (at < pending_.size() && pending_[at] == '{' && at <= kMostSpace) {
      state_ = State::json;
      marker_ = searched_ = at;
      strings_ = {};
      depth_ = 0;
      return true;
    }
    // Behind calls, white space and separators alone are nothing.
    if (at == pending_.size() && calls_ > 0 && ended) pending_.clear();
    state_ = State::content;
    return true;
  }
  bool closed = false;
  for (; searched_ < pending_.size() && !closed; ++searched_) {
    const char c = pending_[searched_];
    if (strings_.takes(c)) continue;
    if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      closed = --depth_ == 0;
    }
  }
  if (searched_ > kMostCallBytes) {
    too_long(delta);
    return true;
  }
  if (!closed && !ended) return false;
  const auto call = closed ? parse_json_call(std::string_view(pending_).substr(marker_, searched_ - marker_)) : std::nullopt;
  if (call) {
    pending_.erase(0, searched_);
    emit({*call}, delta);
    state_ = State::json_start;
  } else {
    delta.content += take(searched_);
    state_ = State::content;
  }
  return true;
}

void MessageParser::emit(std::vector<ParsedCall> calls, MessageDelta& delta) {
  for (ParsedCall& call : calls) {
    ToolCallDelta row;
    row.index = calls_++;
    row.id = call.id.empty() ? call_id(row.index, call) : std::move(call.id);
    row.name = std::move(call.name);
    row.arguments = std::move(call.arguments);
    delta.tool_calls.push_back(std::move(row));
  }
}

}  // namespace lockstep
