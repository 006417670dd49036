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

// An answer that is JSON from its first character to its last (`what` holds it: "response_format") is not looked through for stop strings,
// as OpenAI's service does not: they are dropped. Error: stop_token_ids of tokens that are text, which would cut it.
void hold_stops_to_grammar(const GenerationService& service, SamplingFields& sampling, const std::string& what);

struct CallConstraint {
  MakeConstraint make;
  bool own = false;  // calls are as the model's family writes them, else the JSON that ForcedToolParser reads
  char first = 0;    // what calls begin with, and answers do not
};
// Calls, in the family's own way where GenerationService::call_markup() says how and it can hold the tools' arguments.
CallConstraint forced_call_constraint(const std::shared_ptr<GenerationService>& service, const Json& tools, const ToolChoice& choice, bool parallel,
                                      bool after_reasoning);
// Calls that the model begins by itself, each to the schema of its tool, amid any text: for tools that say "strict": true. RequestError
// with the tool's field where the family's calls cannot be held to it.
CallConstraint strict_call_constraint(const std::shared_ptr<GenerationService>& service, const Json& tools, bool parallel, bool after_reasoning);
bool has_strict_tool(const Json& tools);
// Calls, or an answer of the format: the first character tells. RequestError with response_format where it cannot.
CallConstraint call_or_answer_constraint(const std::shared_ptr<GenerationService>& service, const Json& tools, const ResponseFormat& format, bool parallel,
                                         bool after_reasoning);

}  // namespace lockstep
