// The CUDA forms of linear.h, forward and input gradient: the products of product_cuda.h over the weight, or over the weight transposed.
#include "kernels/linear/product_cuda.h"
#include "kernels/linear/quantised_cuda.h"
#include "kernels/linear/rounded_rows_cuda.h"
#include "kernels/linear/stored_weights_cuda.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
const std::int32_t* integers_or_none(const View& v) { return v ? device_pointer<std::int32_t>(v) : nullptr; }
}  // namespace

void launch(const LinearForward& op, Grid& grid) {
  const bool of_integers = op.w.bits != 0 && !is_low_bit_format(op.w.bits);
  const int leaves = of_integers ? quantised_leaf_count(op.w.inputs, op.w.maximum_leaves) : leaf_count(op.w.inputs, op.w.maximum_leaves);
  const ProductItems items{device_pointer<float>(op.y),
                           op.y.stride,
                           op.y_step,
                           device_pointer<float>(op.x),
                           op.x.stride,
                           op.x_step,
                           op.x.rows,
                           op.w.inputs,
                           op.w.outputs,
                           op.w.count,
                           integers_or_none(op.offsets),
                           integers_or_none(op.ends),
                           leaves,
                           op.leaf_begin,
                           op.leaf_end < leaves ? op.leaf_end : leaves,
                           op.round_input_bf16,
                           op.accumulate,
                           op.scale,
                           op.rows_made ? device_pointer<std::int32_t>(op.rows_made) : nullptr};
  if (of_integers) return launch_quantised(items, op.w, grid);
  with_weights(op.w, false, [&](const auto& weights) { launch_product(with_rounded_rows(items, op.w.bits, grid), weights, grid); });
}

void launch(const LinearBackwardInput& op, Grid& grid) {
  const int leaves = leaf_count(op.w.outputs, op.w.maximum_leaves);
  const ProductItems items{device_pointer<float>(op.dx),
                           op.dx.stride,
                           op.x_step,
                           device_pointer<float>(op.dy),
                           op.dy.stride,
                           op.y_step,
                           op.dy.rows,
                           op.w.outputs,
                           op.w.inputs,
                           op.w.count,
                           integers_or_none(op.offsets),
                           integers_or_none(op.ends),
                           leaves,
                           0,
                           leaves < 8 ? leaves : 8,
                           false,
                           op.accumulate,
                           op.scale,
                           nullptr};
  with_weights(op.w, true, [&](const auto& weights) {
    launch_product(with_rounded_rows(items, op.w.bits, grid), Transposed<std::remove_cvref_t<decltype(weights)>>{weights, op.w.inputs}, grid);
  });
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
