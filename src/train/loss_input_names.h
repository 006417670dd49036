// Names of a datum's loss inputs, as files and protocols spell them, with the member of TrainSequence that each fills. The one place that knows these
// names.
//   for (const LossInputName& input : kLossInputNames) read(input.name, sequence.*input.values);
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
