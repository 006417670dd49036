// Makes the constraint that a request asks for: a JSON schema, any JSON, or a tool call. A schema is compiled here, on the caller's thread; the
// result makes one constraint for each choice. Any thread.
//   order.completion.make_constraint = format_constraint(service, request.sampling.response_format, false);
#pragma once
#include <functional>
#include <memory>

#include "api/openai/chat_request.h"

namespace lockstep {

// Empty: everything is allowed. `after_reasoning`: from the end of reasoning on.
// RequestError with the field of the schema where it is not offered.
MakeConstraint format_constraint(const std::shared_ptr<GenerationService>& service, const ResponseFormat& format, bool after_reasoning);

// Drops the stop strings of an answer that a grammar makes JSON from its first character to its last (OpenAI's service ignores them there
// too). `what`: the field with the grammar, for errors: "response_format". Error: stop_token_ids of text tokens, which would cut the JSON.
void hold_stops_to_grammar(const GenerationService& service, SamplingFields& sampling, const std::string& what);

struct CallConstraint {
  MakeConstraint make;
  bool own = false;  // calls have the format of the model's family, else the JSON that ForcedToolParser reads
  char first = 0;    // the character that calls begin with, and other answers do not
};
// The answer is calls, in the family's own format if GenerationService::call_markup() describes it and it can carry the tools' arguments.
CallConstraint forced_call_constraint(const std::shared_ptr<GenerationService>& service, const Json& tools, const ToolChoice& choice, bool parallel,
                                      bool after_reasoning);
// The answer is any text with calls where the model begins them, each to the schema of its tool: for tools with "strict": true. RequestError
// with the tool's field where the family's format cannot be held to its schema.
CallConstraint strict_call_constraint(const std::shared_ptr<GenerationService>& service, const Json& tools, bool parallel, bool after_reasoning);
bool has_strict_tool(const Json& tools);
// The answer is calls, or has the format; its first character tells which. RequestError with response_format where it cannot.
CallConstraint call_or_answer_constraint(const std::shared_ptr<GenerationService>& service, const Json& tools, const ResponseFormat& format, bool parallel,
                                         bool after_reasoning);

}  // namespace lockstep
