// What tokens do to a request that says them, and that they undo when they are taken back: its text, its penalties, its constraint, and
// whether it ends. Knows no pages (engine/scheduler.h) and tells nobody. Used by one thread at a time.
//   const FinishReason end = accept_tokens(s, tokens); truncate_tokens(s, 3);
#pragma once
#include <span>

#include "engine/sequence.h"

namespace lockstep {

// 0 to k of the tokens, in order, up to one that ends the request: a stop token, the last that it may say, or one at which its constraint
// throws (FinishReason::error, with generation.error; that one is not taken). none: it goes on. Those that are taken are moved from.
FinishReason accept_tokens(Sequence& s, std::span<GeneratedToken> tokens);
// Leaves the first `count` generated tokens alone. The constraint may throw: FinishReason::error, as above, and nothing is taken back.
FinishReason truncate_tokens(Sequence& s, std::size_t count);

}  // namespace lockstep
