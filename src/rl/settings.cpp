#include "rl/settings.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {
constexpr std::array<std::pair<std::string_view, AdvantageKind>, 2> kKinds = {
    {{"group-normalised", AdvantageKind::group_normalised}, {"mean-only", AdvantageKind::mean_only}}};

template <class T>
void in_range(std::string_view name, T value, T low, T high) {
  if (!(value >= low && value <= high)) fail(ErrorCode::invalid_argument, "{} is {}, allowed is {} to {}", name, value, low, high);
}
}  // namespace

std::vector<std::string> advantage_kind_names() {
  std::vector<std::string> names;
  for (const auto& kind : kKinds) names.emplace_back(kind.first);
  return names;
}

AdvantageKind advantage_kind_by_name(const std::string& name) {
  for (const auto& [known, kind] : kKinds)
    if (known == name) return kind;
  fail(ErrorCode::invalid_argument, "advantages is '{}', allowed are {}{}", name, fmt::join(advantage_kind_names(), ", "),
       did_you_mean(name, advantage_kind_names()));
}

std::string advantage_kind_name(AdvantageKind kind) {
  for (const auto& [name, known] : kKinds)
    if (known == kind) return std::string(name);
  return "";
}

std::vector<std::string> share_prompts_names() { return {"off", "forward", "backward"}; }

SharePrompts share_prompts_by_name(const std::string& name) {
  const std::vector<std::string> names = share_prompts_names();
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end())
    fail(ErrorCode::invalid_argument, "share_prompts is '{}', allowed are {}{}", name, fmt::join(names, ", "), did_you_mean(name, names));
  return static_cast<SharePrompts>(at - names.begin());
}

void check(const RlSettings& s) {
  share_prompts_by_name(s.share_prompts);
  in_range<std::int64_t>("steps", s.steps, 1, 1'000'000'000);
  in_range<std::int64_t>("problems", s.problems, 1, 1 << 20);
  in_range<std::int64_t>("rollouts", s.rollouts, 2, 1 << 16);
  in_range<std::int64_t>("max_tokens", s.max_tokens, 1, 1 << 20);
  in_range<std::int64_t>("warmup", s.warmup, 0, s.steps);
  if (!(s.temperature > 0 && s.temperature <= 100)) fail(ErrorCode::invalid_argument, "temperature is {}, allowed is above 0 to 100", s.temperature);
  in_range("clip_low", s.clip_low, 0.0, 1.0);
  in_range("clip_high", s.clip_high, 0.0, 1e6);
  in_range("importance_cap", s.importance_cap, 0.0, 1e6);
  in_range("learning_rate", s.learning_rate, 0.0, 1e3);
  in_range("beta1", s.beta1, 0.0, 1.0 - 1e-12);
  in_range("beta2", s.beta2, 0.0, 1.0 - 1e-12);
  if (!(s.eps > 0 && s.eps <= 1)) fail(ErrorCode::invalid_argument, "eps is {}, allowed is above 0 to 1", s.eps);
  in_range("weight_decay", s.weight_decay, 0.0, 1e3);
  in_range("max_norm", s.max_norm, 0.0, 1e9);
}

std::string describe(const RlSettings& s) {
  std::string text = fmt::format(
      "environment {} steps {} problems {} rollouts {} max_tokens {} temperature {} advantages {} clip {} {} learning_rate {} {} warmup {} "
      "adamw {} {} {} weight_decay {} max_norm {} seed {}",
      s.environment, s.steps, s.problems, s.rollouts, s.max_tokens, s.temperature, advantage_kind_name(s.advantages), s.clip_low, s.clip_high,
      s.learning_rate, s.schedule, s.warmup, s.beta1, s.beta2, s.eps, s.weight_decay, s.max_norm, s.seed);
  if (s.importance_cap > 0) text += fmt::format(" importance_cap {}", s.importance_cap);
  if (s.share_prompts == "backward") text += " share_prompts backward";
  return text;
}

OptimizerStep optimizer_step(const RlSettings& s, double learning_rate) {
  return {.learning_rate = learning_rate,
          .beta1 = s.beta1,
          .beta2 = s.beta2,
          .eps = s.eps,
          .weight_decay = s.weight_decay,
          .max_norm = s.max_norm};
}

}  // namespace lockstep
