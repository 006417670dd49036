// Runs an operation that is cheap (a norm, an elementwise product) so that its output is not saved for the backward, which recomputes it.
//   compute(ctx, y, {gate, up}, [&ctx](const View& to, std::span<const View> in) { ctx.launch(...); });
#pragma once
#include <algorithm>
#include <array>
#include <span>

#include "model/context.h"

namespace lockstep {

// Launches the kernels that fill y from the inputs x.
using Recompute = std::function<void(const View& y, std::span<const View> x)>;

// Lets records of y save `recompute` and its inputs instead of y's buffer.
void save_recompute(Context& ctx, Tensor& y, Inputs inputs, Recompute recompute);

// Fills y from at most four inputs; with a tape, records save the function instead of the buffer.
template <class F>
void compute(Context& ctx, Tensor& y, Inputs inputs, const F& recompute) {
  std::array<View, 4> views;
  std::transform(inputs.begin(), inputs.end(), views.begin(), [](const Input& x) { return x.tensor.view(); });
  recompute(y.view(), std::span<const View>(views.data(), inputs.size()));
  if (ctx.tape()) save_recompute(ctx, y, inputs, recompute);
}

}  // namespace lockstep
