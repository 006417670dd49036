// Names of the loss inputs that a datum may have besides its targets, as files and protocols spell them. The one place that knows these names.
#pragma once
#include "train/data.h"

namespace lockstep {

struct LossInputName {
  const char* name;
  std::vector<float> TrainSequence::*values;
};
inline constexpr LossInputName kLossInputNames[] = {{"weights", &TrainSequence::weights},
                                                    {"advantages", &TrainSequence::advantages},
                                                    {"logprobs", &TrainSequence::old_logprobs},
                                                    {"proximal_logprobs", &TrainSequence::proximal_logprobs},
                                                    {"reference_logprobs", &TrainSequence::reference_logprobs},
                                                    {"clip_low_threshold", &TrainSequence::clip_low},
                                                    {"clip_high_threshold", &TrainSequence::clip_high},
                                                    {"sequence_ratio_mask", &TrainSequence::ratio_mask}};
// Of a model with a value head.
inline constexpr LossInputName kValueInputNames[] = {
    {"weights", &TrainSequence::weights}, {"returns", &TrainSequence::advantages}, {"values", &TrainSequence::old_logprobs}};

}  // namespace lockstep
