#include "rl/algorithms/algorithms.h"

#include "base/choice.h"

namespace lockstep {

const std::vector<AlgorithmRow>& algorithm_rows() {
  // name, paper, advantages, loss, clipping below and above, averaging, redraws, share of a completion that is overlong, KL to a
  // reference in, its estimator
  static const std::vector<AlgorithmRow> rows = {
      {"grpo", "arXiv 2402.03300", "group-normalised", "grpo", 0.2, 0.2, "sequence_token_mean", 0, 0, "loss", "k3"},
      {"dr_grpo", "arXiv 2503.20783", "mean-only", "grpo", 0.2, 0.2, "sequence_token_sum_norm", 0, 0, "loss", "k3"},
      {"rloo", "arXiv 2402.14740", "leave-one-out", "reinforce", 0.2, 0.2, "sequence_token_sum", 0, 0, "reward", "k1"},
      {"reinforce_plus_plus", "arXiv 2501.03262", "batch-whitened", "ppo", 0.2, 0.2, "token_mean", 0, 0, "reward", "k1"},
      {"reinforce_plus_plus_baseline", "arXiv 2501.03262", "mean-only-whitened", "ppo", 0.2, 0.2, "token_mean", 0, 0, "reward", "k1"},
      {"maxrl", "arXiv 2602.02710", "mean-normalised", "grpo", 0.2, 0.2, "token_mean", 0, 0, "loss", "k3"},
      {"dapo", "arXiv 2503.14476", "group-normalised", "dapo", 0.2, 0.28, "token_mean", 10, 0.2, "loss", "k3"},
      {"gspo", "arXiv 2507.18071", "group-normalised", "gspo", 3e-4, 4e-4, "sequence_token_mean", 0, 0, "loss", "k3"},
      {"ppo", "arXiv 1707.06347", kGaeAdvantages, "ppo", 0.2, 0.2, "token_mean", 0, 0, "reward", "k1", "full"},
      {"cispo", "arXiv 2506.13585", "group-normalised", "cispo", 1.0, 0.28, "token_mean", 0, 0, "loss", "k3"},
  };
  return rows;
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names{std::string(kCustomAlgorithm)};
  for (const AlgorithmRow& row : algorithm_rows()) names.emplace_back(row.name);
  return names;
}

void apply_algorithm(std::string_view name, RlSettings& s, const std::function<bool(std::string_view option)>& given) {
  check_choice("algorithm", name, algorithm_names());
  s.algorithm = name;
  for (const AlgorithmRow& row : algorithm_rows()) {
    if (row.name != name) continue;
    if (!given("advantages")) s.advantages = row.advantages;
    if (!given("critic") && s.advantages == row.advantages) s.critic.kind = row.critic;
    if (!given("loss")) s.loss = row.loss;
    if (!given("clip-low")) s.clip_low = row.clip_low;
    if (!given("clip-high")) s.clip_high = row.clip_high;
    if (!given("correction")) s.correction = row.correction;
    if (!given("averaging")) s.averaging = row.averaging;
    if (!given("kl-in")) s.kl_in = row.kl_in;
    if (!given("kl")) s.kl = row.kl;
    if (!given("redraws")) s.redraws = row.redraws;
    if (!given("overlong-tokens")) s.overlong_tokens = static_cast<std::int64_t>(row.overlong_share * static_cast<double>(s.max_tokens));
  }
}

}  // namespace lockstep
