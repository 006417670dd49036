#include "rl/settings.h"

#include <algorithm>

#include "base/choice.h"
#include "base/error.h"
#include "rl/advantages/advantages.h"
#include "rl/rollout.h"
#include "runs/policy_loss.h"

namespace lockstep {
namespace {
template <class T>
void in_range(std::string_view name, T value, T low, T high) {
  if (!(value >= low && value <= high)) fail(ErrorCode::invalid_argument, "{} is {}, allowed is {} to {}", name, value, low, high);
}
}  // namespace

std::vector<std::string> kl_names() { return {"k1", "k2", "k3", "unbiased", "k3_plus"}; }
std::vector<std::string> kl_places() { return {"loss", "reward"}; }
std::vector<std::string> correction_names() { return {"none", "tis", "clip", "icepop", "mask"}; }

namespace {
bool says(const RlSettings& s, std::string_view key) {
  return std::any_of(s.loss_config.begin(), s.loss_config.end(), [&](const std::string& pair) { return pair.starts_with(key); });
}

// Its own options, and those that the correction is.
std::vector<std::string> loss_options_of(const RlSettings& s) {
  std::vector<std::string> options = s.loss_config;
  if (s.correction == "none") return options;
  options.push_back("correction=" + s.correction);
  const bool weighs_ratio = s.correction != "mask" && s.loss != "reinforce" && s.loss != "dro";
  if (weighs_ratio && !says(s, "anchor=")) options.emplace_back("anchor=proximal");
  return options;
}

// What is corrected by, wherever that is said.
std::string correction_of(const RlSettings& s) {
  constexpr std::string_view kKey = "correction=";
  std::string correction = s.correction;
  for (const std::string& pair : s.loss_config)
    if (pair.starts_with(kKey)) correction = pair.substr(kKey.size());
  return correction;
}

void check_correction(const RlSettings& s) {
  check_choice("correction", s.correction, correction_names());
  if (s.correction != "none" && says(s, "correction="))
    fail(ErrorCode::invalid_argument, "correction is '{}', and loss_config has one too; allowed is one of them", s.correction);
  const std::string correction = correction_of(s);
  if (correction == "none")
    for (const std::string& pair : s.loss_config)
      if (pair.starts_with("correction_"))
        fail(ErrorCode::invalid_argument, "loss_config is '{}', which does nothing without a correction; allowed is to leave it out", pair);
  const bool weighs = correction != "none" && correction != "mask";
  if (s.importance_cap > 0 && (weighs || needs_proximal(s)))
    fail(ErrorCode::invalid_argument, "importance_cap is {} with {}: both weigh by the sampler's ratio; allowed is one of them", s.importance_cap,
         weighs ? "correction " + correction : "loss_config anchor=proximal");
}

void check_kl(const RlSettings& s) {
  in_range("kl_coefficient", s.kl_coefficient, 0.0, 1e6);
  check_choice("kl", s.kl, kl_names());
  check_choice("kl_in", s.kl_in, kl_places());
  if (s.kl_coefficient > 0 && s.kl_in == "reward" && (s.kl == "unbiased" || s.kl == "k3_plus"))
    fail(ErrorCode::invalid_argument, "kl is '{}' with kl_in 'reward', but what it adds is a gradient; allowed in rewards are k1, k2, k3", s.kl);
  if (s.kl_coefficient > 0 && s.kl_in == "reward" && s.advantages != kGaeAdvantages && advantage_row(s.advantages).nonnegative)
    fail(ErrorCode::invalid_argument, "kl_in is 'reward', but advantages {} divide by rewards, which a cost would make negative; allowed is kl_in loss",
         s.advantages);
  for (const std::string& pair : s.loss_config)
    for (const std::string_view own : {"kl=", "kl_coefficient="})
      if (pair.starts_with(own))
        fail(ErrorCode::invalid_argument, "loss_config is '{}', allowed is to say it as {} (--{})", pair, own.substr(0, own.size() - 1),
             own == "kl=" ? "kl" : "kl-coefficient");
}
}  // namespace

bool needs_reference(const RlSettings& s) { return s.kl_coefficient > 0; }

bool needs_proximal(const RlSettings& s) {
  const std::vector<std::string> options = loss_options_of(s);
  return std::find(options.begin(), options.end(), "anchor=proximal") != options.end();
}

std::vector<std::string> all_advantage_names() {
  std::vector<std::string> names = advantage_names();
  names.emplace_back(kGaeAdvantages);
  return names;
}

void check(const RlSettings& s) {
  share_prompts_by_name(s.share_prompts);
  in_range<std::int64_t>("steps", s.steps, 1, 1'000'000'000);
  in_range<std::int64_t>("problems", s.problems, 1, 1 << 20);
  in_range<std::int64_t>("rollouts", s.rollouts, 1, 1 << 16);
  check_choice("advantages", s.advantages, all_advantage_names());
  check(s.critic, s.advantages);
  if (s.critic.there() && s.redraws > 0)
    fail(ErrorCode::invalid_argument, "redraws is {}, and a critic has a signal where rewards are equal; allowed is 0", s.redraws);
  if (s.advantages != kGaeAdvantages) {
    const AdvantageRow& row = advantage_row(s.advantages);
    if (s.rollouts < row.least)
      fail(ErrorCode::invalid_argument,
           "rollouts is {}, the advantages {} need at least {} of a problem; allowed for {} is advantages batch-whitened, or gae with a critic", s.rollouts,
           row.name, row.least, s.rollouts);
  }
  in_range<std::int64_t>("max_tokens", s.max_tokens, 1, 1 << 20);
  in_range<std::int64_t>("share_prompts_from", s.share_prompts_from, 2, 1 << 20);
  check_compact_at(s.compact_at, has_many_turns(s.environment), s.environment);
  check_chat(s.chat, s.compact_at);
  in_range<std::int64_t>("warmup", s.warmup, 0, s.steps);
  if (!(s.temperature > 0 && s.temperature <= 100)) fail(ErrorCode::invalid_argument, "temperature is {}, allowed is above 0 to 100", s.temperature);
  in_range<std::int64_t>("top_k", s.top_k, 0, (std::int64_t{1} << 31) - 1);
  if (!(s.top_p > 0 && s.top_p <= 1)) fail(ErrorCode::invalid_argument, "top_p is {}, allowed is above 0 to 1", s.top_p);
  in_range("min_p", s.min_p, 0.0, 1.0);
  in_range("clip_low", s.clip_low, 0.0, 1.0);
  in_range("clip_high", s.clip_high, 0.0, 1e6);
  in_range("importance_cap", s.importance_cap, 0.0, 1e6);
  check_kl(s);
  check_correction(s);
  check_policy_loss(policy_loss(s));
  in_range<std::int64_t>("redraws", s.redraws, 0, 1000);
  if (s.redraws > 0 && s.rollouts < 2)
    fail(ErrorCode::invalid_argument, "redraws is {}, but the rewards of 1 rollout are always equal; allowed is 0", s.redraws);
  in_range<std::int64_t>("overlong_tokens", s.overlong_tokens, 0, s.max_tokens);
  in_range("overlong_penalty", s.overlong_penalty, 0.0, 1e6);
  in_range<std::int64_t>("epochs", s.epochs, 1, 1000);
  in_range<std::int64_t>("mini_batches", s.mini_batches, 1, s.problems);
  in_range("stop_kl", s.stop_kl, 0.0, 1e6);
  if (s.importance_cap > 0 && s.epochs * s.mini_batches > 1)
    fail(ErrorCode::invalid_argument,
         "importance_cap is {} with {} epochs of {} mini-batches: after a step the cap would take what was learned for a mismatch; allowed is 0, or 1 of both",
         s.importance_cap, s.epochs, s.mini_batches);
  in_range("learning_rate", s.learning_rate, 0.0, 1e3);
  in_range("beta1", s.beta1, 0.0, 1.0 - 1e-12);
  in_range("beta2", s.beta2, 0.0, 1.0 - 1e-12);
  if (!(s.eps > 0 && s.eps <= 1)) fail(ErrorCode::invalid_argument, "eps is {}, allowed is above 0 to 1", s.eps);
  in_range("weight_decay", s.weight_decay, 0.0, 1e3);
  in_range("max_norm", s.max_norm, 0.0, 1e9);
}

PolicyLoss policy_loss(const RlSettings& s) {
  std::vector<std::string> options = loss_options_of(s);
  if (s.kl_coefficient > 0 && s.kl_in == "loss") {
    options.push_back("kl=" + s.kl);
    options.push_back(fmt::format("kl_coefficient={}", s.kl_coefficient));
  }
  return {.name = s.loss,
          .clip_low = static_cast<float>(s.clip_low),
          .clip_high = static_cast<float>(s.clip_high),
          .averaging = s.averaging,
          .length_norm = static_cast<double>(s.max_tokens),
          .options = std::move(options),
          .importance_cap = s.importance_cap};
}

std::string describe(const RlSettings& s) {
  std::string text = fmt::format(
      "environment {} steps {} problems {} rollouts {} max_tokens {} temperature {} advantages {} clip {} {} learning_rate {} {} warmup {} "
      "adamw {} {} {} weight_decay {} max_norm {} seed {}",
      s.environment, s.steps, s.problems, s.rollouts, s.max_tokens, s.temperature, s.advantages, s.clip_low, s.clip_high, s.learning_rate, s.schedule, s.warmup,
      s.beta1, s.beta2, s.eps, s.weight_decay, s.max_norm, s.seed);
  if (s.importance_cap > 0) text += fmt::format(" importance_cap {}", s.importance_cap);
  if (s.share_prompts == "backward") text += " share_prompts backward";
  // What was not there before has no word while it is as it was.
  const RlSettings plain;
  if (s.top_k > 0) text += fmt::format(" top_k {}", s.top_k);
  if (s.top_p < 1) text += fmt::format(" top_p {}", s.top_p);
  if (s.min_p > 0) text += fmt::format(" min_p {}", s.min_p);
  if (s.loss != plain.loss || !s.loss_config.empty()) text += fmt::format(" loss {} {}", s.loss, fmt::join(s.loss_config, " "));
  if (s.correction != plain.correction) text += fmt::format(" correction {}", s.correction);
  if (s.averaging != plain.averaging) text += fmt::format(" averaging {}", s.averaging);
  if (s.kl_coefficient > 0) text += fmt::format(" kl {} {} in {}", s.kl_coefficient, s.kl, s.kl_in);
  if (s.compact_at > 0) text += fmt::format(" compact_at {}", s.compact_at);
  if (s.chat) text += " chat";
  if (!s.train_summaries) text += " train_summaries off";
  if (s.redraws > 0) text += fmt::format(" redraws {}", s.redraws);
  if (s.overlong_tokens > 0) text += fmt::format(" overlong {} {}", s.overlong_tokens, s.overlong_penalty);
  if (s.epochs * s.mini_batches > 1) text += fmt::format(" epochs {} mini_batches {}", s.epochs, s.mini_batches);
  if (s.stop_kl > 0) text += fmt::format(" stop_kl {}", s.stop_kl);
  return text + describe(s.critic);
}

OptimizerStep optimizer_step(const RlSettings& s, double learning_rate) {
  return {.learning_rate = learning_rate, .beta1 = s.beta1, .beta2 = s.beta2, .eps = s.eps, .weight_decay = s.weight_decay, .max_norm = s.max_norm};
}

}  // namespace lockstep
