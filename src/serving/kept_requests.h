// Whether what a request computes is kept for training (docs/kept-forwards.md): as the request says, else as the key file says of its key, else as its
// route does. Any thread.
//   const bool kept = keeps_forward(*service, owner, std::nullopt, /*otherwise=*/true);
#pragma once
#include <optional>
#include <string>

#include "serving/serving.h"

namespace lockstep {

// Why nothing that this owner asks for can be kept here, to go on from "keep_forward is true, and "; empty: it can. The owner "" is anyone without a key.
std::string why_not_kept(const GenerationService& service, const std::string& owner);
// `asked`: the request's own word, which must be none or false where why_not_kept says why.
bool keeps_forward(const GenerationService& service, const std::string& owner, std::optional<bool> asked, bool otherwise);

}  // namespace lockstep
