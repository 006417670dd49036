#include "train/gradient_norm.h"

#include "kernels/launch.h"

#include <algorithm>
#include <limits>

namespace lockstep {

ScaledNorm scaled_norm(double norm, const AdamParameters& adam) {
  const auto scale = static_cast<float>(adam.gradient_scale), scaled = static_cast<float>(norm) * scale;
  float clip = 1;
  if (adam.max_norm > 0) clip = std::min(clip, static_cast<float>(adam.max_norm) / scaled);
  // Never 0, which would mean no clipping.
  return {scaled, std::max(scale * clip, std::numeric_limits<float>::min())};
}

double take_scale(Backend& backend, const View& norm, double value, AdamParameters& adam) {
  if (adam.gradient_scale == 1) return value;
  const ScaledNorm scaled = scaled_norm(value, adam);
  backend.stream().write(norm, std::vector<float>{1.0f});
  adam.max_norm = static_cast<double>(scaled.factor);
  return scaled.norm;
}

std::string gradient_group(const Parameter& parameter) {
  switch (parameter.adapted) {
    case AdapterKind::attention:
      return "attention";
    case AdapterKind::mlp:
      return "mlp";
    case AdapterKind::unembedding:
      return "unembedding";
    case AdapterKind::none:
      break;
  }
  if (parameter.layout == ParameterLayout::packed) return "other";
  return parameter.outputs > 1 ? "embedding" : "norm";
}

}  // namespace lockstep
