// The ways in which an engine can compute log-probabilities (prefill, chunked, decode, ...), all of which must give the same bits. One thread.
//   const std::vector<float> logprobs = engine_score(engine, {1, 5, 7}, {.kind = ScoreKind::decode});
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace lockstep {

enum class ScoreKind {
  prefill,    // as few chunks as max_batch_rows allows
  chunked,    // chunks of random odd sizes from 1 to 15
  decode,     // one token at a time
  prefix,     // computed twice: the second time as much as possible, or a random number of pages, comes from the prefix
              // cache
  preempted,  // chunks, preempted at a random moment
};

struct ScoreMode {
  ScoreKind kind = ScoreKind::prefill;
  std::uint64_t seed = 0;                                   // of random sizes and of the neighbours
  std::int32_t neighbours = 0;                              // random requests beside it in the batch, under the engine's weights
  std::shared_ptr<const WeightSet> weights = nullptr;       // null: the engine's
  std::shared_ptr<const AdapterWeights> adapter = nullptr;  // null: none
};

std::string_view score_kind_name(ScoreKind kind);

// Log-probabilities of tokens[1..] given those before, n - 1 of them, computed as `mode` says. Error numeric for a NaN or an infinity.
std::vector<float> engine_score(Engine& engine, const std::vector<std::int32_t>& tokens, const ScoreMode& mode = {});

}  // namespace lockstep
