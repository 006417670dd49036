// The norm of a step's gradients, and the factor (scale and clip) by which every gradient is multiplied (docs/numerics.md, "Optimizer"). Plain
// values, except for the launches.
//   const ScaledNorm scaled = scaled_norm(1.5, {.max_norm = 1}); const std::string group = gradient_group(p);
#pragma once
#include "train/optimizers/optimizer.h"

namespace lockstep {

struct ScaledNorm {
  double norm = 0;   // of the scaled gradient
  float factor = 1;  // scale and clip in one
};
ScaledNorm scaled_norm(double norm, const AdamParameters& adam);
// Where the caller scales gradients, AdamW takes the factor as a norm of 1 and a maximum of `factor`: `norm` (f32 [1, 1], read as
// `value`) and adam.max_norm become these. Returns the norm of the scaled gradient.
double take_scale(Backend& backend, const View& norm, double value, AdamParameters& adam);

// The group of a model's parameter: attention, mlp, unembedding (as for adapters), embedding, norm (and biases), other.
std::string gradient_group(const Parameter& parameter);

}  // namespace lockstep
