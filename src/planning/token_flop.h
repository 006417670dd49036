// The arithmetic of one more token behind a given context: matrices, attention and indexer scores; for the model as it is, with an indexer in every
// layer, and with attention to all keys. Counted from config.json and the tensors' shapes; nothing runs. Definitions: the sparse attention of
// DeepSeek-V3.2 and GLM-5, and GLM-5.2's sharing of indexers (docs/long-context.md). Plain values.
//   for (const TokenFlop& form : token_flop(planned_config(settings), profile_by_name("cpu-bf16w"), 1 << 20)) use(form.name, form.total());
#pragma once
#include <string>
#include <vector>

#include "model/forward_counts.h"
#include "model/model.h"

namespace lockstep {

// Number of a parameter's weights that one row is multiplied with: of a matrix all, of experts those of the chosen ones, otherwise none.
double weights_a_row(const Parameter& parameter, const ModelFacts& facts);

// What attention and indexers of a model do with a key, from its cache's shape.
struct KeyWork {
  double key = 0, value = 0;  // width of the key and of the value that a query head uses
  bool latent = false;        // one entry for all heads
  double index = 0;           // width of an index key times index heads, summed over layers
};
KeyWork key_work(const Model& model, const Profile& profile);
// Keys that a row's layer sees, each once, of counts over all query heads and layers.
double visible_keys(const Model& model, const ForwardCounts& counts);

struct TokenFlop {
  std::string name;                                      // "dense", "an indexer in every layer", "as configured"
  std::int64_t indexers = 0;                             // layers that have one
  double matrices = 0, attention = 0, index_scores = 0;  // additions and multiplications of a forward (numerics/flop.h)
  double total() const { return matrices + attention + index_scores; }
};

// For the last of `context` tokens. Without indexers only "as configured". Errors: those of make_model; invalid_argument for a context below 1 or
// above the model's own.
std::vector<TokenFlop> token_flop(const Json& config, const Profile& profile, std::int64_t context);

}  // namespace lockstep
