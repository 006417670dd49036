// The loss of reinforcement learning by name: any policy loss of train/losses.h, with options as the command line spells them. Pure functions.
//   check_policy_loss({.name = "gspo", .clip_low = 3e-4f, .clip_high = 4e-4f});
#pragma once
#include <string_view>

#include "runs/trainer_port.h"

namespace lockstep {

struct LossOptions;

// Errors invalid_argument: an unknown loss, or one that takes no advantages; those of loss_by_name.
LossOptions loss_options(const PolicyLoss& loss);
void check_policy_loss(const PolicyLoss& loss);  // the same errors
// Whether it has a correction whose factor is 1 for every token of a sampler with the trainer's own numbers. `steps`: optimizer steps on the same data.
bool corrects_nothing(const PolicyLoss& loss, std::int64_t steps);
// Names of losses that use advantages; values of their option `averaging`.
std::vector<std::string> policy_loss_names();
std::vector<std::string> averaging_names();
// Of one token, d = log pi - log ref: k1 is d, k2 d^2 / 2, k3 e^-d - 1 + d. Without gradient, in double with our own exponential; d is held within 20.
// Error invalid_argument for an estimator that is a gradient.
double kl_estimate(std::string_view estimator, double d);
// Whether the loss bounds its ratio by clip_low and clip_high.
bool loss_clips(std::string_view name);

}  // namespace lockstep
