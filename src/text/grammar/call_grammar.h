// Builds the grammar of tool calls: what a model may write where it must call, in its family's call format. Knows no request. Pure functions.
//   GrammarPart part = calls_grammar(call_markup(format, source), tools, tokenizer, true);
#pragma once
#include "text/grammar/token_grammar.h"
#include "text/message/tool_call_formats.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

// [{"name": "add", "arguments": {...}}]: for models that were taught no way of their own.
const CallMarkup& plain_call_markup();

// Arguments are an object, whether their schema says so or not.
nlohmann::ordered_json arguments_schema(const nlohmann::ordered_json& tool);

// One call to one of `tools` (OpenAI's list), or up to 16 where `several`. What the tokenizer holds for special in the markup must
// be those tokens. Arguments that the family's tags cannot hold are refused when the grammar is compiled.
GrammarPart calls_grammar(const CallMarkup& markup, const nlohmann::ordered_json& tools, const Tokenizer& tokenizer, bool several);

// Any text, in which the family's mark of calls is followed by calls to `tools` and nothing else; of Llama, whose calls have none, calls alone or
// a text that does not begin as they do. Error unsupported for a family whose calls are not known.
GrammarPart text_with_calls(MessageFormat format, const CallMarkup& markup, const nlohmann::ordered_json& tools, const Tokenizer& tokenizer, bool several);

}  // namespace lockstep
