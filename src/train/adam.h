// One AdamW step (kernels/optimizer) as numbers for the kernel: bias corrections of its place in the run, and what is the same for all
// parameters. Plain values.
//   const AdamStep step(adam, ++steps); backend.launch(&KernelTable::adamw, step.of(master, m, v, next, {}, gradient, norm, true));
#pragma once
#include "kernels/backend.h"
#include "model/manifest.h"
#include "train/options.h"

namespace lockstep {

// A norm that is read back, and what a step multiplies every gradient by beyond it: docs/numerics.md, "Optimizer".
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
// What a parameter of a model counts as: attention, mlp, unembedding (as adapters have them), embedding, norm (and biases), other.
std::string gradient_group(const Parameter& parameter);
void add_to_group(GradientGroups& groups, const std::string& name, const View& gradient);
// sqrt of each group's sum of squares, times the scale.
std::vector<std::pair<std::string, double>> group_norms(Backend& backend, const GradientGroups& groups, double scale);

class AdamStep {
 public:
  // `step`: from 1.
  AdamStep(const AdamParameters& adam, std::int64_t step);
  // Views as AdamW's, of one size, here made flat; `decays`: a matrix.
  AdamW of(const View& master, const View& m, const View& v, const View& master_out, const View& compute_out, const View& gradient, const View& norm,
           bool decays) const;

 private:
  AdamParameters adam_;
  float bias1_, bias2_;
};

}  // namespace lockstep
