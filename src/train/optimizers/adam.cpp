#include "train/optimizers/adam.h"

#include <algorithm>
#include <limits>

namespace lockstep {

namespace {
// 1 - beta^step in double, by repeated squaring.
float bias_correction(double beta, std::int64_t step) {
  double power = 1;
  for (; step > 0; step >>= 1, beta *= beta)
    if (step & 1) power *= beta;
  return static_cast<float>(1.0 - power);
}
// As fp32 has it. A weight without a gradient so far has an update of 0 / (0 + eps), which is 0 with any eps but 0.
float eps_of(double eps) {
  using Limits = std::numeric_limits<float>;
  return static_cast<float>(std::clamp<double>(eps, Limits::denorm_min(), Limits::max()));
}
View flat(const View& v) { return v ? v.reshape(1, v.size()) : v; }
}  // namespace

AdamStep::AdamStep(const AdamParameters& adam, std::int64_t step)
    : adam_(adam), bias1_(bias_correction(adam.beta1, step)), bias2_(bias_correction(adam.beta2, step)) {}

AdamW AdamStep::of(const View& master, const View& m, const View& v, const View& master_out, const View& compute_out, const View& gradient, const View& norm,
                   bool decays) const {
  return {flat(master),
          flat(m),
          flat(v),
          flat(master_out),
          flat(compute_out),
          flat(gradient),
          norm,
          static_cast<float>(adam_.learning_rate),
          static_cast<float>(adam_.beta1),
          static_cast<float>(adam_.beta2),
          eps_of(adam_.eps),
          static_cast<float>(decays ? adam_.weight_decay : 0.0),
          bias1_,
          bias2_,
          static_cast<float>(adam_.max_norm)};
}

}  // namespace lockstep
