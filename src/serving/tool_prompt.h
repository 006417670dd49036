// Puts tools into the prompt of a model whose chat template ignores them (`lockstep serve --tool-format qwen`): the system message lists the tools
// and describes the format of a call; earlier calls and their results become text of the messages. Pure functions.
//   input = with_tools_told(std::move(input), call_markup(MessageFormat::qwen, {}));
#pragma once
#include <string>
#include <vector>

#include "text/message/tool_call_formats.h"
#include "text/template/chat_template.h"

namespace lockstep {

// Whether a prompt made of this template is another when a request offers tools.
bool shows_tools(const ChatTemplate& chat);
// What --tool-format allows: formats whose calls are JSON between words that any tokenizer writes.
std::vector<std::string> tool_format_names();
// Error invalid_argument: another name.
MessageFormat tool_format_by_name(const std::string& name);
// `input` without tools, calls and roles that only a template for tools knows; its text says them.
ChatTemplateInput with_tools_told(ChatTemplateInput input, const CallMarkup& markup);

}  // namespace lockstep
