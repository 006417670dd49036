// Options of an engine, and its counters. Plain values.
//   EngineOptions options{.max_sequences = 8};
#pragma once
#include <cstdint>
#include <memory>

#include "engine/drafts/draft_options.h"
#include "model/forward_counts.h"
#include "parallel/layout.h"

namespace lockstep {

class KeptForwards;
class ProcessMail;

struct EngineOptions {
  std::int64_t page_size = 16;   // positions of a page
  std::int64_t cache_pages = 0;  // 0: as many as cache_bytes holds and all sequences can use
  std::int64_t cache_bytes = std::int64_t{256} << 20;
  std::int64_t max_batch_rows = 512;  // rows of one forward
  std::int64_t max_sequences = 256;   // running at a time
  std::int64_t prefill_chunk = 128;   // prompt rows of one sequence in one forward
  bool prefix_cache = true;
  // The longest a forward with rows of live requests may take when rows of others are added (engine/live_room.h); 0: no limit.
  double live_token_seconds = 0;
  DraftOptions drafts;  // for requests without a choice of their own
  RankLayout ranks;     // tp, ep and pp: threads that share the model; dp is training's (replicas of an engine are engines)
  // In process 0 of several: ranks are spread over all processes, and the others follow this engine (engine/step_follower.h). Null: all ranks are in
  // this process. Outlives the engine.
  ProcessMail* lead = nullptr;
  // Where layer outputs of requests that ask for it (Request::keep_forward) are stored, on the same runtime; null: nowhere. Of several ranks those of
  // keeps_over_ranks (model/kept_ranks.h).
  std::shared_ptr<KeptForwards> kept_forwards = nullptr;
  // With stages of a pipeline and several sequences: a plan for each stage is under way (engine/plans_under_way.h). False: one at a time. No bit changes.
  bool plans_follow = true;
};

// What happens to running requests without weights of their own when the engine gets other weights.
enum class InFlight {
  go_on,     // with their present keys and values; their tokens are marked (GeneratedToken::mixed). Scores and pooled states are computed again
  finish,    // on the old weights, which stay in memory until then
  reprefill  // their text is computed again under the new weights: further tokens are those of a request whose prompt is the text so far
};

// Counters since the engine was made. They also show whether a path under test ran at all.
struct EngineCounters {
  std::int64_t forwards = 0, rows = 0, largest_batch = 0;
  std::int64_t following_forwards = 0;  // that began while another one was in a later stage of a pipeline
  std::int64_t prefill_tokens = 0,
               decode_tokens = 0;                    // rows of prompts (and of recomputed text); rows of sampled tokens
  std::int64_t chunks = 0;                           // slices of prompts that took more than one forward
  std::int64_t mixed_batches = 0;                    // forwards with prefill and decode rows
  std::int64_t cache_hit_tokens = 0;                 // positions taken from the prefix cache
  std::int64_t preemptions = 0, evictions = 0;       // of sequences; of pages, dropped from the prefix cache for others
  std::int64_t own_weights_forwards = 0;             // under requests' own weights
  std::int64_t adapter_rows = 0, most_adapters = 0;  // rows under an adapter; adapters in one forward
  std::int64_t sampled_tokens = 0;
  std::int64_t draft_rows = 0;  // of draft tokens, not counted in decode_tokens
  DraftCounters drafts;
  std::int64_t mixed_version_tokens = 0;       // sampled with a prefix of several weights versions: not exact
  std::int64_t live_rows = 0, other_rows = 0;  // of live work and of rollouts (base/fair_shares.h), without guessed ones
  std::int64_t held_back_forwards = 0;         // in which rollouts had fewer rows than they could use, to keep live tokens in time
  std::int64_t failed_requests = 0;            // a NaN or an infinity in their rows, or a constraint
  ForwardCounts work;                          // keys that attention read and rows that experts computed, as their kernels counted
};

}  // namespace lockstep
