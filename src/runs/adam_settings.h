// AdamW's parameters at a step, from any settings struct with these names: a run's, which the command line fills (add_adamw_options), or an
// OptimizerStep.
//   const AdamParameters adam = adam_parameters(config, learning_rate(schedule, step));
#pragma once
#include "train/optimizers/optimizer.h"

namespace lockstep {

// Other members have their defaults: router biases do not move.
template <class Settings>
AdamParameters adam_parameters(const Settings& s, double learning_rate) {
  AdamParameters adam;
  adam.learning_rate = learning_rate;
  adam.beta1 = s.beta1;
  adam.beta2 = s.beta2;
  adam.eps = s.eps;
  adam.weight_decay = s.weight_decay;
  adam.max_norm = s.max_norm;
  return adam;
}

}  // namespace lockstep
