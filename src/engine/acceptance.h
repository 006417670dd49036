// Appends sampled tokens to a request, or removes its last ones: updates its text, penalties and constraint, and says whether it ends.
// Knows no pages (engine/scheduler.h) and no client. Used by one thread at a time.
//   const FinishReason end = accept_tokens(s, tokens); truncate_tokens(s, 3);
#pragma once
#include <span>

#include "engine/sequence.h"

namespace lockstep {

// 0 to k of the tokens, in order, up to one that ends the request: a stop token, the last that it may say, or one at which its constraint
// throws (FinishReason::error, with generation.error; that one is not taken). none: it goes on. Those that are taken are moved from.
FinishReason accept_tokens(Sequence& s, std::span<GeneratedToken> tokens);
// The beginning of an answer that goes on (Request::said): penalties and the constraint accept what stands in the text already. Error invalid_argument
// where the constraint throws.
void replay_tokens(Sequence& s, std::span<const std::int32_t> tokens);
// Leaves the first `count` generated tokens alone. The constraint may throw: FinishReason::error, as above, and nothing is taken back.
FinishReason truncate_tokens(Sequence& s, std::size_t count);

}  // namespace lockstep
