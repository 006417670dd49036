// How model families write tool calls: the markers around a block of calls, and what stands inside. A format is a row of the
// table in tool_call_formats.cpp. Knows nothing of streams. Pure functions, constant tables; any thread.
//   MessageFormat format = detect_message_format(chat_template_source);
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/message/argument_types.h"

namespace lockstep {

enum class MessageFormat {
  plain,     // no tool calls
  glm,       // <tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>
  qwen,      // <tool_call>{"name", "arguments"}</tool_call>, or <function=NAME><parameter=K>V</parameter></function> inside
  llama,     // {"name", "parameters"} as the whole message, perhaps behind <|python_tag|>, several with ; between
  deepseek,  // V3, R1, V3.1: the tool_calls_begin tokens; V3.2: DSML tags
  kimi,      // K2: the tool_calls_section tokens
  minimax,   // M2: <minimax:tool_call><invoke name="NAME"><parameter name="K">V</parameter></invoke></minimax:tool_call>
  nemotron,  // <TOOLCALL>[{"name", "arguments"}]</TOOLCALL>, or as qwen
};
// "glm". The reverse: invalid_argument with a suggestion.
std::string_view message_format_name(MessageFormat format);
MessageFormat message_format_by_name(std::string_view name);
std::vector<std::string> message_format_names();
// The family whose markers a chat template's source holds; plain when there is none.
MessageFormat detect_message_format(std::string_view chat_template_source);

struct ParsedCall {
  std::string name;
  std::string arguments;  // JSON text of an object
  std::string id;         // where the format has one
};

// One kind of block: everything between `begin` and `end` is handed to `parse`, which gives none for what is malformed.
struct CallBlock {
  std::string_view begin, end;
  std::optional<std::vector<ParsedCall>> (*parse)(std::string_view body, const ArgumentTypes& types);
  bool may_be_json = false;  // a body that begins as JSON: an end marker inside its strings does not count
  bool needs_end = false;    // without the end marker nothing tells a whole call from one that was cut off
};
struct ToolCallFormat {
  MessageFormat format;
  std::string_view name;
  std::vector<CallBlock> blocks;
  std::vector<std::string_view> signs;  // in a chat template
};
const ToolCallFormat& tool_call_format(MessageFormat format);

// One call {"name": ..., "arguments" or "parameters": {...}}; none for anything else. The arguments' text stays as written.
std::optional<ParsedCall> parse_json_call(std::string_view text);

}  // namespace lockstep
