// An adapter folded into the weights it stands on: W + s B A, a model of its own that needs no adapter. Its bits are not those of the
// unmerged form, which adds s (B (A x)) to W x. Pure function.
//   const WeightImages merged = merged_weights(model->manifest(), masters, *layout, adapter_images);
#pragma once
#include "model/adapter.h"

namespace lockstep {

// Each element is rounded once: fp32(W + s * sum over r ascending of B[n, r] A[r, k]), the right side in double precision.
// Errors: invalid_argument for an adapter of another model; unsupported for an adapted head that is the input embedding too.
WeightImages merged_weights(const Manifest& model, const WeightImages& weights, const AdapterLayout& layout, const WeightImages& adapter);

}  // namespace lockstep
