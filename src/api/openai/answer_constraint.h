// What a request holds its answer to: a JSON schema, any JSON, the call of a tool. A schema is compiled here, on the caller's
// thread; the result makes one constraint a choice. Any thread.
//   order.make_constraint = format_constraint(service, request.sampling.response_format, false);
#pragma once
#include <functional>
#include <memory>

#include "api/openai/chat_request.h"

namespace lockstep {

using MakeConstraint = std::function<std::shared_ptr<TokenConstraint>()>;

// Empty: everything is allowed. `after_reasoning`: from the end of reasoning on.
// RequestError with the field of the schema where it is not offered.
MakeConstraint format_constraint(const std::shared_ptr<GenerationService>& service, const ResponseFormat& format, bool after_reasoning);

struct CallConstraint {
  MakeConstraint make;
  bool own = false;  // calls are as the model's family writes them, else the JSON that ForcedToolParser reads
  char first = 0;    // what calls begin with, and answers do not
};
// Calls, in the family's own way where GenerationService::call_markup() says how and it can hold the tools' arguments.
CallConstraint forced_call_constraint(const std::shared_ptr<GenerationService>& service, const Json& tools, const ToolChoice& choice,
                                      bool parallel, bool after_reasoning);
// Calls, or an answer of the format: the first character tells. RequestError with response_format where it cannot.
CallConstraint call_or_answer_constraint(const std::shared_ptr<GenerationService>& service, const Json& tools, const ResponseFormat& format,
                                         bool parallel, bool after_reasoning);

}  // namespace lockstep
