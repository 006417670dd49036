// What a model wrote, taken apart as it streams: reasoning (<think>), content, tool calls in the model family's own format.
// How the text is cut into pieces does not change what comes out in all. A call comes out when it is complete; what looks
// like a call and is malformed comes out as content, so no word is lost: only markup and the white space beside it go.
// At most kMostCallBytes wait. Knows no model and no API. Thread rule: one message, one thread.
//   MessageParser parser(detect_message_format(chat.source()), tools, opened_reasoning);
//   for (part : stream) send(parser.push(part)); send(parser.flush());
#pragma once
#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/message/argument_types.h"
#include "text/message/tool_call_formats.h"

namespace lockstep {

struct ToolCallDelta {
  std::size_t index = 0;      // of the call in its message
  std::string id, name;       // in the first delta of a call
  std::string arguments;      // all of a call's make one JSON object
};

struct MessageDelta {
  std::string reasoning, content;
  std::vector<ToolCallDelta> tool_calls;
  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
};

// Follows JSON text: a brace or a marker inside a string counts for nothing.
struct JsonStrings {
  bool inside = false, escaped = false;
  // Whether c belongs to a string, its quotes included.
  bool takes(char c) {
    if (!inside) return inside = c == '"';
    if (escaped) escaped = false;
    else if (c == '\\') escaped = true;
    else if (c == '"') inside = false;
    return true;
  }
};

class MessageParser {
 public:
  static constexpr std::size_t kMostCallBytes = std::size_t{4} << 20;

  // tools: OpenAI's list, whose schemas say which arguments are numbers where the format does not; or null.
  // starts_in_reasoning: the prompt ended with an opened <think>. Without tools, MessageFormat::plain parses reasoning alone.
  MessageParser(MessageFormat format, const nlohmann::ordered_json& tools, bool starts_in_reasoning);

  // `text` with the text of special tokens, the end token left out.
  MessageDelta push(std::string_view text);
  // The end of the message.
  MessageDelta flush();
  bool has_tool_calls() const { return calls_ > 0; }

 private:
  enum class State { start, reasoning, content, call, json_start, json };
  enum class Skip { nothing, newlines, spaces };

  bool advance(MessageDelta& delta, bool ended);
  bool advance_start(bool ended);
  bool advance_reasoning(MessageDelta& delta, bool ended);
  bool advance_content(MessageDelta& delta, bool ended);
  bool advance_call(MessageDelta& delta, bool ended);
  bool advance_json(MessageDelta& delta, bool ended);
  void skip();
  std::string take(std::size_t bytes);
  void too_long(MessageDelta& delta);
  void emit(std::vector<ParsedCall> calls, MessageDelta& delta);
  std::size_t call_end();  // where the end marker of the block begins, npos while it is not there

  const ToolCallFormat& format_;
  ArgumentTypes types_;
  State state_ = State::start;
  Skip skip_ = Skip::nothing;
  bool in_reasoning_;
  std::string pending_;  // not yet decided
  // In a call: which block, where its text begins behind the white space in front, how far it was searched.
  const CallBlock* block_ = nullptr;
  std::size_t marker_ = 0, searched_ = 0;
  JsonStrings strings_;  // of the call, as far as searched_
  int depth_ = 0;
  std::size_t calls_ = 0;
};

}  // namespace lockstep
