// Takes the outputs of a step for one slice: scores of its prompt rows and hidden states, which go into the answer of its request, and sampled tokens.
// Pure functions.
//   take_scores(s, p.begin, slice, result); pool_hidden(s, result.hidden(slice), p.begin + p.count, hidden);
#pragma once
#include <string>

#include "engine/step_result.h"

namespace lockstep {

// Log-probabilities, likeliest tokens, draws and experts of prompt rows, in their places. `begin`: the position of the slice's first row. Moves
// them out of the result.
void take_scores(Sequence& s, std::int64_t begin, std::size_t slice, StepResult& result);
// The slice's i-th sampled token, with what the request asks for beside it, which is moved out of the result. `version`: GeneratedToken::weights_version.
GeneratedToken sampled_token(const Sequence& s, std::uint64_t version, std::size_t slice, std::size_t i, StepResult& result);
// Adds hidden states, `hidden` numbers each, of the positions before `end`. In double and position by position, so that neither chunks nor
// neighbours show.
void pool_hidden(Sequence& s, std::span<const float> rows, std::int64_t end, std::int64_t hidden);
// Writes the sum to Generation::pooled; false: it has NaNs or infinities, and the request ends with an error.
bool pooled_soundly(Sequence& s);
// Why a request fails, one of whose rows has these flags.
std::string describe_fault(const Sequence& s, std::int32_t flags, std::int64_t position);

}  // namespace lockstep
