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

void add_to_group(GradientGroups& groups, const std::string& name, const View& gradient) {
  const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == name; });
  if (group != groups.end()) group->second.push_back(gradient);
  else groups.emplace_back(name, std::vector<View>{gradient});
}

std::vector<std::pair<std::string, double>> group_norms(Backend& backend, const GradientGroups& groups, double scale) {
  std::vector<std::pair<std::string, double>> norms;
  const Buffer norm = backend.device().allocate(DType::f32, 1, 1, MemoryCategory::workspace);
  for (const auto& [name, gradients] : groups) {
    backend.launch(&KernelTable::square_sum, SquareSum{norm.view(), gradients});
    norms.emplace_back(name, static_cast<double>(backend.stream().read(norm.view()).get()[0] * static_cast<float>(scale)));
  }
  return norms;
}

}  // namespace lockstep
