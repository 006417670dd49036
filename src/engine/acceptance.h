// Appends sampled tokens to a request, or removes its last ones: updates its text, penalties and constraint, and says whether it ends.
// Knows no pages (engine/scheduler.h) and no client. Used by one thread at a time.
//   const FinishReason end = accept_tokens(s, tokens); truncate_tokens(s, 3);
#pragma once
#include <span>

#include "engine/sequence.h"

namespace lockstep {

// Appends the tokens in order, up to one that ends the request: a stop token, the last of max_tokens, or one at which the constraint throws
// (FinishReason::error with generation.error; that token is not appended). Returns FinishReason::none when the request goes on. Moves from the
// tokens.
FinishReason accept_tokens(Sequence& s, std::span<GeneratedToken> tokens);
// Replays the beginning of an answer that goes on (Request::said): penalties and the constraint accept its tokens. Error invalid_argument when the
// constraint throws.
void replay_tokens(Sequence& s, std::span<const std::int32_t> tokens);
// Removes all generated tokens but the first `count`. When the constraint throws: FinishReason::error, as above, and nothing is removed.
FinishReason truncate_tokens(Sequence& s, std::size_t count);

}  // namespace lockstep
