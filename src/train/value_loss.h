// The loss of a model with a value head, from its options by name (docs/losses.md).
//   LossOptions loss = value_loss({{"value_clip", 0.2}});
#pragma once
#include "train/losses.h"

namespace lockstep {

inline constexpr std::string_view kValueLossName = "value";

// How far a value may move from its old value and still lower the loss (kernels/value/value.h); 0: any distance. Stored as the ratio's upper bound.
inline float value_clip(const LossOptions& loss) { return loss.parameters.clip_high; }

// Sums are its default. Options: averaging, length_norm, normaliser, value_clip. Errors: those of loss_by_name.
LossOptions value_loss(const LossConfig& config = {});

}  // namespace lockstep
