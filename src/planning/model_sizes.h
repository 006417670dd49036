// Sizes of a model for memory estimates: parameters, cache and widths of activations, per block of equal layers. Counted from the tensors that the
// model declares, so every family has them; no weight is read or allocated. Families that only the catalog knows: planning/model_dimensions.h.
// Multi-token prediction and correction biases are not counted. Plain values.
//   const ModelSizes sizes = model_sizes(*make_model(config));  // sizes.parameters()
#pragma once
#include <cstdint>
#include <vector>

#include "model/model.h"

namespace lockstep {

// Layers that are alike. Counts are numbers, not bytes; widths are of one token.
struct LayerBlock {
  std::int64_t count = 0;               // layers
  std::int64_t dense = 0, experts = 0;  // parameters of one: of routed experts, and all others
  std::int64_t cache = 0;               // values per token in the cache
  bool cache_by_heads = false;          // key and value heads, which tensor parallelism shares; else one latent for all heads
  std::int64_t width = 0;               // values per token that the operations of one layer give
  std::int64_t adapted = 0;             // inputs + outputs of every matrix that an adapter stands on, experts' included
};

struct ModelSizes {
  std::vector<LayerBlock> blocks;
  std::int64_t embedding = 0, head = 0, rest = 0;  // head 0: tied; rest: final norm, vision tower
  std::int64_t hidden = 0, vocabulary = 0, layers = 0, experts = 0;
  std::int64_t heads = 0;  // what tensor parallelism must divide: key and value heads, or the heads of MLA
  std::int64_t parameters() const;
};

ModelSizes model_sizes(const Model& model);

}  // namespace lockstep
