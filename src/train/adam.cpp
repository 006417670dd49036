#include "train/adam.h"

#include <algorithm>
#include <limits>

namespace lockstep {

namespace {
// 1 - beta^step in double, by repeated squaring.
float bias_correction(double beta, std::int64_t step) {
  double power = 1;
  for (; step > 0; step >>= 1, beta *= beta)
    if (step & 1) power *= beta;
  return static_cast<float>(1.0 - power);
}
View flat(const View& v) { return v ? v.reshape(1, v.size()) : v; }
}  // namespace

ScaledNorm scaled_norm(double norm, const AdamParameters& adam) {
  const auto scale = static_cast<float>(adam.gradient_scale), scaled = static_cast<float>(norm) * scale;
  float clip = 1;
  if (adam.max_norm > 0) clip = std::min(clip, static_cast<float>(adam.max_norm) / scaled);
  // Never 0, which would say that there is no clip.
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
    case AdapterKind::attention: return "attention";
    case AdapterKind::mlp: return "mlp";
    case AdapterKind::unembedding: return "unembedding";
    case AdapterKind::none: break;
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

AdamStep::AdamStep(const AdamParameters& adam, std::int64_t step)
    : adam_(adam), bias1_(bias_correction(adam.beta1, step)), bias2_(bias_correction(adam.beta2, step)) {}

AdamW AdamStep::of(const View& master, const View& m, const View& v, const View& master_out, const View& compute_out, const View& gradient,
                   const View& norm, bool decays) const {
  return {flat(master), flat(m), flat(v), flat(master_out), flat(compute_out), flat(gradient), norm, static_cast<float>(adam_.learning_rate),
          static_cast<float>(adam_.beta1), static_cast<float>(adam_.beta2), static_cast<float>(adam_.eps),
          static_cast<float>(decays ? adam_.weight_decay : 0.0), bias1_, bias2_, static_cast<float>(adam_.max_norm)};
}

}  // namespace lockstep
