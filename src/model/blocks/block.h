// The interface of blocks, the parts of a decoder layer: attention blocks mix rows, feed-forward blocks (an MLP) work on each row alone. A block
// reads its keys of config.json and declares its parameters when it is constructed, one object per layer, and is immutable afterwards. Prefixes of
// names end in '.'.
//   std::unique_ptr<FeedForwardBlock> mlp = make(manifest, "model.layers.0.mlp."); const Tensor y = mlp->forward(ctx, h);
#pragma once
#include "model/kv_cache.h"
#include "model/operations/index_select.h"
#include "model/operations/row_tiles.h"

namespace lockstep {

class AttentionBlock {
 public:
  virtual ~AttentionBlock() = default;
  virtual CacheShape cache_shape(const Profile& profile) const = 0;
  // Whether it uses the selection of an earlier layer: both layers are then one segment (model/operations/segment.h).
  virtual bool shares_selection() const { return false; }
  // h [T, hidden], after the layer's norm -> the value added to the residual stream. `selection` is passed from layer to layer of a segment.
  virtual Tensor forward(Context& ctx, const Tensor& h, int layer, Selection& selection) const = 0;
  // For layers whose rows attend to the same keys several times (model/blocks/mtp_layer.h). enter: only writes the rows' entries to the cache.
  // remember: forward() that also returns these entries in `entry`. again: attends with other queries to the keys that remember() selected and wrote;
  // writes nothing. Error unsupported: this block does not offer them.
  virtual void enter(Context& ctx, const Tensor& h, int layer) const;
  virtual Tensor remember(Context& ctx, const Tensor& h, int layer, Selection& selection, Tensor& entry) const;
  virtual Tensor again(Context& ctx, const Tensor& h, int layer, const Selection& selection, const Tensor& entry) const;
};

class FeedForwardBlock {
 public:
  virtual ~FeedForwardBlock() = default;
  virtual Tensor forward(Context& ctx, const Tensor& h) const = 0;
  virtual RowCost row_cost() const = 0;
  // Number of weights that a token does not use.
  virtual std::int64_t idle_size() const { return 0; }
};

// Limits on a config's numbers, so that sizes computed from them fit in 64 bits before any weight is read.
inline constexpr std::int64_t kLargestDimension = std::int64_t{1} << 24;

}  // namespace lockstep
