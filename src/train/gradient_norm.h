// The norm of a step's gradients, and the factor (scale and clip) by which every gradient is multiplied (docs/numerics.md, "Optimizer"). Plain
// values, except for the launches.
//   add_to_group(groups, gradient_group(p), gradient); group_norms(backend, groups, 1.0);
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

// Gradients by groups of parameters.
using GradientGroups = std::vector<std::pair<std::string, std::vector<View>>>;
// The group of a model's parameter: attention, mlp, unembedding (as for adapters), embedding, norm (and biases), other.
std::string gradient_group(const Parameter& parameter);
void add_to_group(GradientGroups& groups, const std::string& name, const View& gradient);
// sqrt of each group's sum of squares, times the scale.
std::vector<std::pair<std::string, double>> group_norms(Backend& backend, const GradientGroups& groups, double scale);

}  // namespace lockstep
