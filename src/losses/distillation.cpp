#include "losses/distillation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/choice.h"
#include "base/error.h"
#include "numerics/elementary_double.h"

namespace lockstep {
namespace {
constexpr std::array<std::pair<std::string_view, Divergence>, 3> kDivergences = {
    {{"reverse", Divergence::reverse}, {"forward", Divergence::forward}, {"jensen_shannon", Divergence::jensen_shannon}}};
constexpr double kLeastRest = 1.0 / (1 << 24);
constexpr double kFurthest = 700;  // exp_double of its negative is still a number above 0

// One outcome: its part of the value, and the derivative of the whole by its probability in the student, up to a constant that all outcomes share,
// which no softmax has.
struct Outcome {
  double value, slope;
};
Outcome outcome(Divergence kind, double q, double log_q, double p, double log_p) {
  if (kind == Divergence::reverse) return {q * (log_q - log_p), log_q - log_p};
  if (kind == Divergence::forward) return {p * (log_p - log_q), -exp_double(std::clamp(log_p - log_q, -kFurthest, kFurthest))};
  const double log_m = std::max(log_q, log_p) + log_double(0.5 * (1.0 + exp_double(-std::abs(log_q - log_p))));  // exact where they are equal
  return {0.5 * (q * (log_q - log_m) + p * (log_p - log_m)), 0.5 * (log_q - log_m)};
}
}  // namespace

std::vector<std::string> divergence_names() {
  std::vector<std::string> names;
  for (const auto& row : kDivergences) names.emplace_back(row.first);
  return names;
}

Divergence divergence_by_name(std::string_view name) {
  for (const auto& [known, kind] : kDivergences)
    if (known == name) return kind;
  fail_choice("the divergence", name, divergence_names());
}

double divergence(const DistillationSettings& settings, std::span<const float> student, std::span<const float> teacher, std::span<double> slopes) {
  double value = 0, students = 0, teachers = 0, mean = 0;
  const auto at = [](float logprob) { return std::clamp(static_cast<double>(logprob), -kFurthest, 0.0); };
  for (std::size_t k = 0; k < student.size(); ++k) {
    const double log_q = at(student[k]), log_p = at(teacher[k]), q = exp_double(log_q), p = exp_double(log_p);
    const Outcome one = outcome(settings.kind, q, log_q, p, log_p);
    students += q, teachers += p, value += one.value;
    slopes[k] = one.slope;
    mean += q * one.slope;
  }
  // The slopes by log-probabilities are q (slope - constant): with the rest's slope as the constant where there is one, which makes up for the
  // probability that it gives; else with the mean over the student, so that they sum to 0 as those of a softmax's do.
  double constant = students > 0 ? mean / students : 0;
  if (settings.rest) {
    const double q = std::max(1.0 - students, kLeastRest), p = std::max(1.0 - teachers, kLeastRest);
    const Outcome rest = outcome(settings.kind, q, log_double(q), p, log_double(p));
    value += rest.value;
    if (1.0 - students > kLeastRest) constant = rest.slope;
  }
  for (std::size_t k = 0; k < student.size(); ++k) slopes[k] = exp_double(at(student[k])) * (slopes[k] - constant);
  return value;
}

double weigh_by_divergence(const DistillationSettings& settings, TrainSequence& sequence, std::span<const float> student, std::span<const float> teacher,
                           double scale) {
  const auto k = static_cast<std::size_t>(sequence.targets_per_row);
  if (student.size() != sequence.targets.size() || teacher.size() != sequence.targets.size())
    fail(ErrorCode::invalid_argument, "{} targets, {} log-probabilities of the student and {} of the teacher; allowed are equal numbers",
         sequence.targets.size(), student.size(), teacher.size());
  std::vector<double> slopes(k);
  std::vector<std::int32_t> ids;
  double sum = 0;
  for (std::size_t begin = 0; begin < sequence.targets.size(); begin += k) {
    const double weight = static_cast<double>(sequence.weights[begin]);
    const std::span<float> weights(sequence.weights.data() + begin, k);
    if (sequence.targets[begin] < 0 || weight == 0) {
      std::fill(weights.begin(), weights.end(), 0.0f);
      continue;
    }
    ids.assign(sequence.targets.begin() + static_cast<std::ptrdiff_t>(begin), sequence.targets.begin() + static_cast<std::ptrdiff_t>(begin + k));
    std::sort(ids.begin(), ids.end());
    if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end())
      fail(ErrorCode::invalid_argument, "token {} stands twice among the targets of row {}, allowed is once", *twice, begin / k);
    sum += weight * divergence(settings, student.subspan(begin, k), teacher.subspan(begin, k), slopes);
    for (std::size_t i = 0; i < k; ++i) weights[i] = static_cast<float>(-scale * weight * slopes[i]);
  }
  return sum;
}

}  // namespace lockstep
