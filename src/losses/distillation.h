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

// KL(student || teacher); KL(teacher || student); half of each against their mean.
enum class Divergence { reverse, forward, jensen_shannon };

struct DistillationSettings {
  Divergence kind = Divergence::reverse;
  bool rest = false;  // the tokens are not the whole vocabulary: all others together are one outcome more
};

std::vector<std::string> divergence_names();
Divergence divergence_by_name(std::string_view name);  // invalid_argument, with the nearest

// Of one row: `student` and `teacher` are log-probabilities of the same tokens, each once. slopes[k] becomes the derivative by student[k].
// A probability of the rest below 2^-24 counts as that, without a slope of its own: fp32 log-probabilities do not tell it from 0.
double divergence(const DistillationSettings& settings, std::span<const float> student, std::span<const float> teacher, std::span<double> slopes);

// Of a sequence with targets_per_row tokens a row, each once in it: rows whose first target is not masked count, by its weight. All weights become
// -scale * weight * slope, so that their cross-entropy has the gradient of scale * (sum of weight * divergence). Returns that sum, without scale.
// Error invalid_argument: a token that stands twice in a row; another number of log-probabilities.
double weigh_by_divergence(const DistillationSettings& settings, TrainSequence& sequence, std::span<const float> student, std::span<const float> teacher,
                           double scale);
// Of a cross-entropy over K tokens a row, what a distribution is made of is the whole vocabulary or not.
inline bool has_rest(const TrainSequence& sequence, std::int64_t vocabulary) { return sequence.targets_per_row < vocabulary; }

}  // namespace lockstep
