// Puts tools into the prompt of a model whose chat template ignores them (`lockstep serve --tool-format qwen`): the system message lists the tools
// and describes the format of a call; earlier calls and their results become text of the messages. Pure functions.
//   input = with_tools_told(std::move(input), call_markup(MessageFormat::qwen, {}));
#pragma once
#include <string>
#include <vector>

#include "text/message/tool_call_formats.h"
#include "text/template/chat_template.h"

namespace lockstep {

// Whether the template's prompts change when a request offers tools.
bool shows_tools(const ChatTemplate& chat);
// Values of --tool-format: formats whose calls are JSON between marks of ordinary text.
std::vector<std::string> tool_format_names();
// Error invalid_argument: another name.
MessageFormat tool_format_by_name(const std::string& name);
// `input` with tools, calls and their results rewritten as text of ordinary messages.
ChatTemplateInput with_tools_told(ChatTemplateInput input, const CallMarkup& markup);

}  // namespace lockstep
