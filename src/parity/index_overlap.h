// Compares what the layers of a model with sparse attention select on given texts: how far the selections of two layers agree, and how much of a
// layer's dense attention lies inside the selection it uses. `lockstep index-share overlap`, docs/long-context.md. Only rows that see more keys than
// they select are counted. The forward is the model's own; threads, instruction sets and chunks change no bit. Knows no command line. One thread at a
// time, the runtime's.
//   IndexOverlap overlap = measure_index_overlap(runtime, weights, sequences);
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/stop_token.h"
#include "model/runtime.h"

namespace lockstep {

struct IndexOverlap {
  struct Layer {
    int layer = 0, selects = 0;  // `selects`: the layer whose indexer selects for it, which may be itself
    double mass = 0;             // of the dense attention inside the selection, over rows and heads
    double least_head = 0;       // the same of the head that has least, over rows
  };
  struct Pair {
    int first = 0, second = 0;  // layers with an indexer
    double common = 0;          // the share of the keys that one selects which the other selects too
  };
  struct Distance {
    int distance = 0;  // second - first
    std::int64_t pairs = 0;
    double common = 0;  // mean over them
  };
  std::int64_t top_k = 0, sequences = 0, tokens = 0;
  std::int64_t rows = 0;  // counted
  std::vector<Layer> layers;
  std::vector<Pair> pairs;          // ascending
  std::vector<Distance> distances;  // ascending
};

// `rows_at_once`: of one forward. Errors: unsupported for a model without indexers; invalid_argument where no row is counted; numeric for NaN or
// infinity; cancelled once stopped.
IndexOverlap measure_index_overlap(Runtime& runtime, const WeightSet& weights, const std::vector<std::vector<std::int32_t>>& sequences,
                                   const StopToken& stop = {}, std::int64_t rows_at_once = 256);

nlohmann::ordered_json to_json(const IndexOverlap& overlap);
// For people.
std::string to_text(const IndexOverlap& overlap);

}  // namespace lockstep
