// Builds grammars of tool calls: what a model may write where it must call a tool, in its family's call format. Knows no request. Pure functions.
//   GrammarPart part = calls_grammar(call_markup(format, source), tools, tokenizer, true);
#pragma once
#include "text/grammar/token_grammar.h"
#include "text/message/tool_call_formats.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

// [{"name": "add", "arguments": {...}}]: for models without a call format of their own.
const CallMarkup& plain_call_markup();

// The schema of a tool's arguments, which are an object whether the schema says so or not.
nlohmann::ordered_json arguments_schema(const nlohmann::ordered_json& tool);

// One call to one of `tools` (OpenAI's list), or with `several` up to 16. Parts of the markup that are special tokens of the tokenizer must be
// written as those tokens. Arguments that the family's tags cannot hold are refused when the grammar is compiled.
GrammarPart calls_grammar(const CallMarkup& markup, const nlohmann::ordered_json& tools, const Tokenizer& tokenizer, bool several);

// Any text in which the marker that begins the family's calls is followed only by calls to `tools`. For Llama, whose calls have no marker: either
// only calls, or a text that does not begin like one. Error unsupported for a family whose call format is not known.
GrammarPart text_with_calls(MessageFormat format, const CallMarkup& markup, const nlohmann::ordered_json& tools, const Tokenizer& tokenizer, bool several);

}  // namespace lockstep
