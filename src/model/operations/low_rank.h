// Products of adapters (model/adapter.h), over the rows of each adapter, which operations add to those of the frozen weights: u = s (A x), y += B u;
// backward du = s (dy B), dx += du A, and the gradients of A and B.
//   each_adapter(ctx, w, [&](const AdapterRows& rows, const AdapterPair& pair) { ... });
// The backward recomputes u, which costs less than its memory. Operations choose rows and columns; this file knows no operation.
#pragma once
#include "model/adapter_rows.h"
#include "model/context.h"

namespace lockstep {

// One adapter on one matrix: y += B (s (A x)).
struct AdapterPair {
  ParameterId a_id, b_id;
  PackedWeight a, b;
  float scale;
  std::int64_t rank() const { return a.outputs; }
};
// Finds the adapter of a model parameter; false: it has none.
bool adapter_pair(const AdapterWeights& adapter, ParameterId base, const Profile& profile, AdapterPair& pair);
// Whether some rows of this forward use an adapter of w.
bool adapted(const Context& ctx, ParameterId w);

// u = s (A x), dense.
LinearForward adapter_down(const View& u, const View& x, const AdapterPair& pair);
// y += B u.
LinearForward adapter_up(const View& y, const View& u, const AdapterPair& pair);
// du = s (dy B), the gradient of A x.
LinearBackwardInput adapter_down_gradient(const View& du, const View& dy, const AdapterPair& pair);
// adapter_down and adapter_down_gradient of a linear layer where ranks share the model. If they split the weight `w` along that sum (by inputs, in
// the gradient by outputs), each rank adds its leaves, perhaps none, and the joined sum is scaled.
void launch_down(Context& ctx, const View& u, const View& x, ParameterId w, const AdapterPair& pair);
void launch_down_gradient(Context& ctx, const View& du, const View& dy, ParameterId w, const AdapterPair& pair);
// dx += du A.
LinearBackwardInput adapter_input_gradient(const View& dx, const View& du, const AdapterPair& pair);
// Deposits the gradient of an adapter's parameter.
LinearBackwardWeight adapter_weight_gradient(GradientSet& gradients, ParameterId id, const PackedWeight& w, const View& dy, const View& x, const View& segment);

// How adapters join a product with a weight; empty functions: no rows use one.
struct AdapterRule {
  std::function<void(const View& y, const View& x)> forward;                    // adds to y
  std::function<void(const View& dx, const View& dy, const View& x)> backward;  // adds to dx (none: no input gradient), deposits gradients of A and B
};

// Calls f(rows of one adapter, its pair) for every adapter of w.
template <class F>
void each_adapter(const Context& ctx, ParameterId w, const F& f) {
  if (!ctx.options().adapters) return;
  AdapterPair pair;
  for (const AdapterRows& rows : *ctx.options().adapters)
    if (rows.end > rows.begin && adapter_pair(*rows.weights, w, ctx.profile(), pair)) f(rows, pair);
}

// An adapter's rows, of the forward and of the tape.
inline View forward_part(const View& v, const AdapterRows& rows) { return v.row_range(rows.begin, rows.end - rows.begin); }
inline View tape_part(const View& v, const AdapterRows& rows) { return v.row_range(rows.tape_begin, rows.tape_end - rows.tape_begin); }
// [T, heads * width] as [T * heads, width]: an activation without gaps, head by head; and the row of the batch that each is of.
inline View head_by_head(const View& v, std::int64_t heads) { return v.reshape(v.rows * heads, v.cols / heads); }
Buffer head_rows(Context& ctx, std::int64_t rows, std::int64_t heads);
// Deposits the gradient of an A that all heads share, from dy [n, heads * rank] and x [n, heads * width] of this rank's heads, of which the first
// pair.a.inputs columns count: a chain over rows and heads. So every rank gathers all heads, and makes it whole.
void deposit_shared_a(Context& ctx, const AdapterRows& rows, const AdapterPair& pair, const View& dy, const View& x, std::int64_t all_heads,
                      std::int64_t width);

}  // namespace lockstep
