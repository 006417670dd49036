// What a generation service is asked for an order (serving/completion.h), whose errors use the wire's own field names. Any thread.
//   const std::vector<Request> requests = requests_of(order, service);
#pragma once
#include <memory>
#include <vector>

#include "serving/completion.h"

namespace lockstep {

// Checks all of it: what the engine is asked, a request a sample, those of one prompt beside each other; each has a constraint of its own. OrderError.
std::vector<Request> requests_of(const CompletionOrder& order, const GenerationService& service);
// All tokens that end a sample: those asked for first, so that an error's index is the caller's.
std::vector<std::int32_t> end_tokens_of(const CompletionOrder& order, const GenerationService& service);
// A new one. `ends`: end_tokens_of. Null: everything is allowed.
std::shared_ptr<TokenConstraint> constraint_of_sample(const CompletionOrder& order, const GenerationService& service, const std::vector<std::int32_t>& ends);
// OrderError with the field as the wire calls it.
[[noreturn]] void fail_order(const CompletionOrder& order, std::string_view field, const std::string& problem);

}  // namespace lockstep
