// `keep_forward` of completions, chat and responses, on OpenAI's routes and Fireworks': whether what the request computes is kept for training
// (docs/kept-forwards.md). No token of an answer depends on it. Any thread.
//   const bool kept = kept_as_asked(*service, owner, true);
#pragma once
#include <optional>
#include <string>

#include "serving/kept_requests.h"

namespace lockstep {

// keeps_forward (serving/kept_requests.h). Throws RequestError for a request that asks for what cannot be done.
bool kept_as_asked(const GenerationService& service, const std::string& owner, std::optional<bool> asked, bool otherwise = false);

}  // namespace lockstep
