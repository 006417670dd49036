// Whether a chat prompt ends inside the model's reasoning (its template ended with <think>). Pure functions.
//   MessageParser parser(format, tools, prompt_opens_reasoning(tokenizer, prompt));
#pragma once
#include <cstdint>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace lockstep {

// Whether the prompt ends with an opened <think>, so that the answer begins with reasoning.
bool prompt_opens_reasoning(const Tokenizer& tokenizer, const std::vector<std::int32_t>& prompt);

}  // namespace lockstep
