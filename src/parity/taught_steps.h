// Internals of the steps that a parity run compares, for parity_step.cpp only: data of steps that learn from more than their tokens, which are pairs of answers
// (DPO), whose weights are made of the log-probabilities that the step itself computes, and a teacher's distribution (LossKind::divergence).
//   make_pairs(data); weigh_pairs(data, trainer->score(data));
#pragma once
#include <vector>

#include "numerics/profile.h"
#include "parity/parity.h"
#include "train/data.h"

namespace lockstep {

// Gives each second sequence the beginning of the one before it: two answers to one prompt. One that is left over goes.
void make_pairs(std::vector<TrainSequence>& data);
// Weights of a cross-entropy that has the gradient of DPO's loss, from the log-probabilities of pairs whose reference_logprobs and weights (0 of the prompt, 1)
// are given.
void weigh_pairs(std::vector<TrainSequence>& pairs, const std::vector<std::vector<float>>& logprobs);
// Gives every sequence a teacher: the model with weights of its own, on the CPU.
void teach(const ParityModel& model, const Profile& profile, std::vector<TrainSequence>& data);

}  // namespace lockstep
