// Merges an adapter into its base: W + s B A, a model that needs no adapter. Its bits differ from the unmerged
// form's, which adds s (B (A x)) to W x. Pure function.
//   const WeightImages merged = merged_weights(model->manifest(), masters, *layout, adapter_images);
#pragma once
#include "model/adapter.h"

namespace lockstep {

// Merges in place and returns `weights`, so move them in to hold them in memory once. Each element is rounded once: fp32(W + s * sum over r ascending
// of B[n, r] A[r, k]), the right side in double precision.
// Errors: invalid_argument for an adapter of another model; unsupported for an adapted head that is tied to the input embedding.
WeightImages merged_weights(const Manifest& model, WeightImages weights, const AdapterLayout& layout, const WeightImages& adapter);

}  // namespace lockstep
