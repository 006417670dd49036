// What a decoder layer is made of: a block that mixes rows (attention) and one that works on each row (an MLP). A block has read its keys
// of config.json and declared its parameters when it is made, one object a layer; it is never written after. Prefixes end in '.'.
#pragma once
#include "model/kv_cache.h"
#include "model/operations/index_select.h"

namespace lockstep {

class AttentionBlock {
 public:
  virtual ~AttentionBlock() = default;
  virtual CacheShape cache_shape() const = 0;
  // Whether it uses the selection of an earlier layer: both then stand in one segment, the unit that is dropped and replayed.
  virtual bool shares_selection() const { return false; }
  // h [T, hidden], after the layer's norm -> what the residual gets. `selection` goes from layer to layer of a segment.
  virtual Tensor forward(Context& ctx, const Tensor& h, int layer, Selection& selection) const = 0;
};

class FeedForwardBlock {
 public:
  virtual ~FeedForwardBlock() = default;
  virtual Tensor forward(Context& ctx, const Tensor& h) const = 0;
  // Weights that a token does not use.
  virtual std::int64_t idle_size() const { return 0; }
};

// What a file's numbers may say at most: what they make us count must fit in 64 bits before any weight is looked at.
inline constexpr std::int64_t kLargestDimension = std::int64_t{1} << 24;

}  // namespace lockstep
