// Helpers of operations for models split over ranks (model/sharding.h): which columns a rank holds, and how sums and columns are joined.
//   const Tensor x = whole(ctx, input);
// An operation works on this rank's share and gathers the whole where it needs it. Without ranks these do nothing.
#pragma once
#include "model/context.h"
#include "model/segment_range.h"

namespace lockstep {

// This rank's segments of the forward: all of them, where no stages share the model.
SegmentRange own_segments(const Context& ctx, std::int64_t segments);

// How ranks split a parameter; without ranks not at all.
ParameterSplit split_of(const Context& ctx, ParameterId w);
// Items of a parameter on all ranks together (heads, experts).
std::int64_t all_items(const Context& ctx, ParameterId w);
// The split of n heads of `width` columns over ranks, and this rank's number of heads; without ranks null and n.
ColumnSplit head_columns(const Context& ctx, std::int64_t n, std::int64_t width);
std::int64_t own_heads(const Context& ctx, std::int64_t n);

// All columns on every rank; and this rank's columns by `split` (null: all). Both are recorded on the tape.
Tensor whole(Context& ctx, const Tensor& x);
Tensor cut(Context& ctx, const Tensor& x, const ColumnSplit& split);

// This rank's columns of `all`; all of them where `split` is null.
View own_columns(const Context& ctx, const View& all, const ColumnSplit& split);
// Columns of all tensor-parallel ranks, side by side, in `all`.
void gather_columns(Context& ctx, const View& all, const View& own, const ColumnSplit& split);
// The same in a buffer of its own; where `split` is null, `own` as it is.
struct GatheredColumns {
  GatheredColumns(Context& ctx, const View& own, const ColumnSplit& split);
  Buffer buffer;
  View view;
};

// y, a partial sum of this rank over leaves of w's sum, becomes the whole sum on every rank; the same over groups of experts.
void join_leaves(Context& ctx, const View& y, ParameterId w);
void join_experts(Context& ctx, const View& y);
// Where ranks split the inputs of w, each computes a part of every sum: how many leaves of the sum's tree (docs/numerics.md) this rank's part may have.
int leaves_of_share(const Context& ctx, ParameterId w);
// The same of an adapter on w, whose sums have the leaves of numbers in any precision: where w's groups share scales, w's own may be fewer.
int adapter_leaves_of_share(const Context& ctx, ParameterId w);
// w with the former number of leaves, for the product that computes this rank's part.
PackedWeight packed_share(const Context& ctx, ParameterId w);

}  // namespace lockstep
