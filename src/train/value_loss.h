// The loss of a model with a value head, from its options by name (docs/losses.md).
//   LossOptions loss = value_loss({{"value_clip", 0.2}});
#pragma once
#include "train/losses.h"

namespace lockstep {

inline constexpr std::string_view kValueLossName = "value";

// How far a value may move from what it was, where that makes the loss smaller (of the ratio's bounds the upper one stands for it); 0: any way.
inline float value_clip(const LossOptions& loss) { return loss.parameters.clip_high; }

// Sums are its default. Options: averaging, length_norm, normaliser, value_clip. Errors: those of loss_by_name.
LossOptions value_loss(const LossConfig& config = {});

}  // namespace lockstep
