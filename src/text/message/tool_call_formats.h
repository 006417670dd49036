// How model families write tool calls: the markers around a block of calls, and the reader of its contents. A format is a row
// of the table in tool_call_formats.cpp.
//   MessageFormat format = detect_message_format(chat_template_source);
// Knows nothing of messages. Constant tables; any thread.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/message/call_reader.h"

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
// Of "glm"; for any other name invalid_argument with a suggestion.
MessageFormat message_format_by_name(std::string_view name);
std::vector<std::string> message_format_names();
// The family whose markers a chat template's source holds; plain when there is none.
MessageFormat detect_message_format(std::string_view chat_template_source);

// What may precede Llama's calls.
inline constexpr std::string_view kPythonTag = "<|python_tag|>";

// One kind of block: what stands behind `begin`, up to the reader's block_end.
struct CallBlock {
  std::string_view begin;
  std::unique_ptr<CallReader> (*reader)(const ArgumentTypes& types);
};
struct ToolCallFormat {
  MessageFormat format;
  std::string_view name;
  std::vector<CallBlock> blocks;
  std::vector<std::string_view> signs;  // in a chat template
};
const ToolCallFormat& tool_call_format(MessageFormat format);

// How a family writes calls, for grammars that constrain a model to them: the text around a call's name and arguments, and around and
// between calls. Arguments are one JSON object, or a tag for each argument.
struct CallMarkup {
  std::string begin, between, end;                                  // <TOOLCALL>[  ,  ]</TOOLCALL>
  std::string before_name, before_arguments, behind;                // {"name": "  ", "arguments":  }
  bool numbered = false;                                            // behind a name stand ":" and a number
  std::string before_key, before_text, before_value, behind_value;  // <parameter=  >\n  >\n  \n</parameter>\n; of tags
  bool empty() const { return before_name.empty(); }
  bool tags() const { return !before_key.empty(); }
};
// Empty: the family's own way is not known.
CallMarkup call_markup(MessageFormat format, std::string_view chat_template_source);

}  // namespace lockstep
