#include "runs/policy_loss.h"

#include <algorithm>
#include <utility>

#include "base/choice.h"
#include "numerics/elementary_double.h"
#include "train/losses.h"

namespace lockstep {

std::vector<std::string> policy_loss_names() {
  std::vector<std::string> names;
  for (const LossRow& row : loss_rows())
    if (is_policy(row.kind)) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> averaging_names() {
  std::vector<std::string> names;
  for (const auto& [name, averaging] : loss_averagings()) names.push_back(name);
  return names;
}

bool loss_clips(std::string_view name) {
  for (const LossRow& row : loss_rows()) {
    if (row.name != name) continue;
    const std::vector<std::string> options = loss_option_names(row);
    return std::find(options.begin(), options.end(), "clip_low_threshold") != options.end();
  }
  return false;
}

double kl_estimate(std::string_view estimator, double d) {
  constexpr double kFurthest = 20;
  const double held = std::clamp(d, -kFurthest, kFurthest);
  if (estimator == "k1") return held;
  if (estimator == "k2") return 0.5 * held * held;
  if (estimator == "k3") return exp_double(-held) - 1.0 + held;
  fail_choice("the estimator of KL", estimator, {"k1", "k2", "k3"});
}

LossOptions loss_options(const PolicyLoss& loss) {
  check_choice("the loss", loss.name, policy_loss_names());
  LossConfig config{{"averaging", loss.averaging}};
  if (loss.averaging == "sequence_token_sum_norm") config.emplace_back("length_norm", loss.length_norm);
  for (auto& [name, value] : read_loss_config(loss.options)) config.emplace_back(std::move(name), std::move(value));
  LossOptions options = loss_by_name(loss.name, config);
  if (loss_clips(loss.name)) {
    options.parameters.clip_low = 1.0f - loss.clip_low;
    options.parameters.clip_high = 1.0f + loss.clip_high;
  }
  options.normaliser = loss.normaliser;
  return options;
}

void check_policy_loss(const PolicyLoss& loss) { loss_options(loss); }

bool corrects_nothing(const PolicyLoss& loss, std::int64_t steps) {
  const LossParameters p = loss_options(loss).parameters;
  if (p.correction == Correction::none) return false;
  // Over the log-probabilities at the start of the step, which are the sampler's; else over those of now, which are the sampler's until a step was taken.
  const bool equal = p.anchor == RatioAnchor::proximal || steps == 1;
  return equal && p.correction_high >= 1 && (p.correction == Correction::truncate || p.correction_low <= 1);
}

}  // namespace lockstep
