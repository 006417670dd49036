// Which indexers of a model with sparse attention can be removed with the least harm: the loss on given texts with some of them, found by removing
// one after another (greedy) or by trying every choice. `lockstep index-share search`, docs/long-context.md.
//   IndexSearch search = search_indexers(runtime, weights, sequences, {.indexers = 2});   // search.steps.back().layers: those that are left
// A layer without an indexer uses the selection of the last layer before it that has one, so the first layer keeps its own. The loss is the mean of
// -log p of every token but the first of each sequence, added in their order, so threads, instruction sets and chunks change no bit. Nothing is
// trained. Knows no command line. One thread at a time, the runtime's.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/stop_token.h"
#include "model/runtime.h"

namespace lockstep {

struct IndexSearch {
  struct Step {
    std::vector<int> layers;  // with an indexer, ascending
    double loss = 0;
  };
  std::int64_t sequences = 0, tokens = 0;  // tokens: scored
  std::int64_t tried = 0;                  // choices whose loss was computed
  std::vector<Step> steps;                 // all indexers first; then the best choice that was found of each number
  std::int64_t layers = 0;                 // of the model
  bool exhaustive = false;
};

struct IndexSearchSettings {
  std::int64_t indexers = 1;  // that are left
  bool exhaustive = false;    // every choice of that number, of a model of at most kExhaustiveLayers layers; else greedy
  ModelOptions model = {};    // with which the runtime's model was made
  std::function<void(std::int64_t tried, std::int64_t of)> on_tried = {};
};
inline constexpr std::int64_t kExhaustiveLayers = 12;

// Ties go to the choice that leaves out the last layers. Errors: unsupported for a model without indexers, or of a family that has one in every layer;
// invalid_argument if `indexers` is below 1 or above the model's number, no token is scored, or the model has too many layers to try every choice;
// numeric for NaN or infinity; cancelled once stopped.
IndexSearch search_indexers(Runtime& runtime, const WeightSet& weights, const std::vector<std::vector<std::int32_t>>& sequences,
                            const IndexSearchSettings& settings, const StopToken& stop = {});

nlohmann::ordered_json to_json(const IndexSearch& search);
// For people.
std::string to_text(const IndexSearch& search);

}  // namespace lockstep
