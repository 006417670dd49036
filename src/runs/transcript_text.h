// What all writers of transcripts.jsonl share: the text of each token, and numbers printed with all their bits. Pure functions.
//   json["tokens"] = token_pieces(tokenizer, ids); json["logprobs"] = exact_numbers(logprobs);
#pragma once
#include <nlohmann/json.hpp>

#include <span>

#include "text/tokenizer/tokenizer.h"

namespace lockstep {

inline constexpr std::int64_t kTranscriptTokens = 4096;  // of a prompt (its end) and of what follows (its beginning)

// The text in one piece per token; a token that ends within a character has an empty one.
nlohmann::ordered_json token_pieces(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);
// Doubles whose shortest text is the float's: nine digits, and the bits come back.
nlohmann::ordered_json exact_numbers(std::span<const float> values);

}  // namespace lockstep
