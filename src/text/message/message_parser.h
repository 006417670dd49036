// Splits a model's output as it streams: reasoning (<think>), content, tool calls in the model family's own format.
//   MessageParser parser(detect_message_format(chat.source()), tools, opened_reasoning);
//   for (const std::string& part : stream) send(parser.push(part)); send(parser.flush());
// How the text is cut into pieces does not change the result, and nothing that was emitted is retracted. A call to an offered tool
// is emitted as soon as its name is complete (in JSON: and its arguments begin), then its arguments as they come; a call to any other name, when it
// is complete. If an emitted call turns out malformed or the text ends, its arguments stay incomplete, which is no JSON: nobody runs
// half a command by mistake. What is not emitted as a call is emitted as content, so no word is lost: only markup and white space beside
// it are dropped. At most kMostCallBytes are buffered. Knows no model and no API. Thread rule: one message, one thread.
#pragma once
#include <nlohmann/json.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/message/argument_types.h"
#include "text/message/tool_call_formats.h"

namespace lockstep {

struct ToolCallDelta {
  std::size_t index = 0;  // of the call in its message
  std::string id, name;   // in the first delta of a call; id: where the format has one
  std::string arguments;  // a piece; all of a whole call's make one JSON object
};

struct MessageDelta {
  std::string reasoning, content;
  std::vector<ToolCallDelta> tool_calls;  // of one call at most one
  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
};

class MessageParser {
 public:
  static constexpr std::size_t kMostCallBytes = std::size_t{4} << 20;

  // tools: OpenAI's list, whose schemas say which arguments are numbers where the format does not; or null.
  // starts_in_reasoning: the prompt ended with an opened <think>. Without tools, MessageFormat::plain parses reasoning alone.
  MessageParser(MessageFormat format, const nlohmann::ordered_json& tools, bool starts_in_reasoning);
  // As above with types that the answers of one request share.
  MessageParser(MessageFormat format, std::shared_ptr<const ArgumentTypes> types, bool starts_in_reasoning);
  MessageParser(const MessageParser&) = delete;

  // `text` with the text of special tokens, the end token left out; UTF-8.
  MessageDelta push(std::string_view text);
  // The end of the message.
  MessageDelta flush();
  // Parses only the first call: after it, complete or malformed, the message is over() and nothing more is emitted.
  void end_with_first_call() { one_call_ = true; }
  bool over() const { return state_ == State::over; }

 private:
  enum class State { start, reasoning, content, call, json_start, over };
  enum class Skip { nothing, newlines, spaces };

  bool advance(MessageDelta& delta, bool ended);
  bool advance_start(bool ended);
  bool advance_reasoning(MessageDelta& delta, bool ended);
  bool advance_content(MessageDelta& delta, bool ended);
  bool advance_call(MessageDelta& delta, bool ended);
  bool advance_json_start(bool ended);
  void begin_block(std::unique_ptr<CallReader> reader, std::size_t front);
  void end_block(State state, Skip skip);
  void skip();
  std::string_view rest() const { return std::string_view(pending_).substr(front_); }
  void drop(std::size_t bytes);
  std::string take(std::size_t bytes);
  void begin_call(MessageDelta& delta, std::string name, std::string id);
  void add_arguments(MessageDelta& delta, std::string text);
  State behind_reasoning() const { return format_.format == MessageFormat::llama ? State::json_start : State::content; }

  const ToolCallFormat& format_;
  const std::shared_ptr<const ArgumentTypes> types_;
  State state_ = State::start;
  Skip skip_ = Skip::nothing;
  bool in_reasoning_, one_call_ = false;
  std::string pending_;  // from front_ on not yet read
  std::size_t front_ = 0;
  // In a block of calls.
  std::unique_ptr<CallReader> reader_;
  std::string unsaid_;  // read, and not come out in any way
  bool in_call_ = false, told_ = false;
  ToolCallDelta held_;     // the call at hand, until it is told
  std::size_t calls_ = 0;  // told
};

}  // namespace lockstep
