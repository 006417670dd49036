// A layer, or layers that share a selection of keys, as one operation: the unit of a pipeline's stages and of kept forwards, whose rows are read or stored here
// (model/row_values.h). With activation checkpointing each layer's activations are freed, and the layer is computed again in the backward, with the
// selection of the forward: nothing is selected twice.
//   x = segment(ctx, x, {begin, end, top_k, [&](Context& c, const Tensor& h, std::size_t i, Selection& selection) { return layer(c, h, i, selection); }});
#pragma once
#include <functional>

#include "model/operations/index_select.h"

namespace lockstep {

struct SegmentLayers {
  std::size_t begin, end;
  std::int64_t top_k;  // keys of a selection
  // [T, hidden] -> [T, hidden]. The first layer fills in `selection` where it has an indexer and finds nothing there, and all of them use it.
  std::function<Tensor(Context& ctx, const Tensor& input, std::size_t layer, Selection& selection)> layer;
};

// With ForwardOptions::checkpoint and a tape activations are freed and recomputed in the backward. With a source of segments its output is read instead,
// and the backward computes all of it.
Tensor segment(Context& ctx, const Tensor& input, const SegmentLayers& layers);

}  // namespace lockstep
