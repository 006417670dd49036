// Divergences between a student's and a teacher's distribution over the next token, from the log-probabilities of some tokens: the value, and its
// derivative by each of the student's log-probabilities. A cross-entropy over these tokens with the weights -slope has the divergence's gradient. In
// double without libm; formulas: docs/distillation.md. Pure functions.
//   std::vector<double> slopes(k); const double value = divergence({.kind = Divergence::reverse, .rest = true}, student, teacher, slopes);
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/data.h"

namespace lockstep {

struct DistillationSettings {
  Divergence kind = Divergence::reverse;
  bool rest = false;  // the tokens are not the whole vocabulary: all others together count as one more outcome
};

std::vector<std::string> divergence_names();
Divergence divergence_by_name(std::string_view name);  // invalid_argument, with the nearest

// The divergence in one row: `student` and `teacher` are log-probabilities of the same distinct tokens. slopes[k] becomes the derivative by
// student[k]. If the rest's probability is below 2^-24, which fp32 log-probabilities do not tell from 0, it counts as 2^-24 and has no derivative.
double divergence(const DistillationSettings& settings, std::span<const float> student, std::span<const float> teacher, std::span<double> slopes);

// The divergence over a sequence with targets_per_row distinct tokens a row. A row counts by the weight of its first target, unless that is masked.
// All weights become -scale * weight * slope, so that their cross-entropy has the gradient of scale * (sum of weight * divergence). Returns that sum,
// without scale. Error invalid_argument: a token that occurs twice in a row; another number of log-probabilities.
double weigh_by_divergence(const DistillationSettings& settings, TrainSequence& sequence, std::span<const float> student, std::span<const float> teacher,
                           double scale);
// Whether the K tokens of a row leave out part of the vocabulary (DistillationSettings::rest).
inline bool has_rest(const TrainSequence& sequence, std::int64_t vocabulary) { return sequence.targets_per_row < vocabulary; }

}  // namespace lockstep
