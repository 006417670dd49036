#include "model/rope_table.h"

#include <algorithm>

#include "numerics/elementary_double.h"

namespace lockstep {

namespace {
constexpr double kTwoPi = 6.283185307179586476925;

// Llama 3.1: long waves are stretched by the factor, short ones kept, those between mixed.
double llama3_frequency(double inverse, const RopeSpec& spec) {
  const double wave = kTwoPi / inverse;
  if (wave > spec.original_positions / spec.low_frequency) return inverse / spec.factor;
  if (wave < spec.original_positions / spec.high_frequency) return inverse;
  const double smooth = (spec.original_positions / wave - spec.low_frequency) / (spec.high_frequency - spec.low_frequency);
  return (1.0 - smooth) * inverse / spec.factor + smooth * inverse;
}

// YaRN (Peng et al. 2023): a ramp over the dimensions between beta_fast and beta_slow turns.
struct YarnRamp {
  double low, high;
  explicit YarnRamp(const RopeSpec& spec) {
    const auto dimension = [&](double turns) {
      return static_cast<double>(spec.rotary) * log_double(spec.original_positions / (turns * kTwoPi)) / (2.0 * log_double(spec.theta));
    };
    low = dimension(spec.beta_fast);
    high = dimension(spec.beta_slow);
    if (spec.truncate) low = __builtin_floor(low), high = __builtin_ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(spec.rotary - 1));
    if (low == high) high += 0.001;
  }
  double at(double j) const { return std::clamp((j - low) / (high - low), 0.0, 1.0); }
};
}  // namespace

std::vector<float> rope_inverse_frequencies(const RopeSpec& spec) {
  std::vector<float> inverse(static_cast<std::size_t>(spec.rotary / 2));
  for (std::size_t j = 0; j < inverse.size(); ++j) {
    double x = power_double(spec.theta, -2.0 * static_cast<double>(j) / static_cast<double>(spec.rotary));
    if (spec.scaling == RopeSpec::Scaling::linear) x /= spec.factor;
    if (spec.scaling == RopeSpec::Scaling::llama3) x = llama3_frequency(x, spec);
    if (spec.scaling == RopeSpec::Scaling::yarn) {
      const double ramp = YarnRamp(spec).at(static_cast<double>(j));
      x = x / spec.factor * ramp + x * (1.0 - ramp);
    }
    inverse[j] = static_cast<float>(x);
  }
  return inverse;
}

std::vector<float> rope_table(std::int64_t positions, const RopeSpec& spec) {
  const std::vector<float> inverse = rope_inverse_frequencies(spec);
  const auto factor = static_cast<float>(spec.attention_factor);
  std::vector<float> table(static_cast<std::size_t>(positions * spec.rotary));
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::size_t j = 0; j < inverse.size(); ++j) {
      const float angle = static_cast<float>(p) * inverse[j];
      double sine, cosine;
      sin_cos_double(static_cast<double>(angle), sine, cosine);
      float* row = table.data() + p * spec.rotary;
      row[spec.half ? j : 2 * j] = static_cast<float>(cosine) * factor;
      row[spec.half ? inverse.size() + j : 2 * j + 1] = static_cast<float>(sine) * factor;
    }
  return table;
}

}  // namespace lockstep
