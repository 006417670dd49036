#include "rl/step_batch.h"

#include <algorithm>

#include "rl/advantages/advantages.h"
#include "runs/policy_loss.h"

namespace lockstep {
namespace {
// Problems of redraws are numbered from here on, so that no step's own are among them.
constexpr std::uint64_t kRedrawn = std::uint64_t{1} << 40;

// Problem `slot` of the step in its `draw`-th drawing.
std::uint64_t problem_index(const RlSettings& settings, std::int64_t number, std::size_t slot, std::int64_t draw) {
  return static_cast<std::uint64_t>(number) * static_cast<std::uint64_t>(settings.problems) + slot + static_cast<std::uint64_t>(draw) * kRedrawn;
}

std::vector<RolloutGroup> draw_groups(const Environment& environment, RolloutSource& source, const RlSettings& settings, std::int64_t number,
                                      const std::vector<std::size_t>& slots, std::int64_t draw) {
  std::vector<Problem> problems;
  for (const std::size_t slot : slots) problems.push_back(environment.problem(Split::train, settings.seed, problem_index(settings, number, slot, draw)));
  const auto seed_of = [&](std::size_t i) { return derived_seed(settings.seed, SeedUse::rollouts, problem_index(settings, number, slots[i], draw)); };
  return source.sample(problems,
                       {.samples = settings.rollouts,
                        .temperature = settings.temperature,
                        .max_tokens = settings.max_tokens,
                        .top_k = settings.top_k,
                        .top_p = settings.top_p,
                        .min_p = settings.min_p,
                        .kept_tokens = true,
                        .compact_at = settings.compact_at,
                        .train_summaries = settings.train_summaries},
                       seed_of);
}

void count(const RolloutGroup& group, StepBatch& batch) {
  for (const Rollout& r : group.rollouts) {
    const double reward = r.total_reward();
    batch.reward += reward;
    batch.pass_at_1 += reward >= 1;
    batch.ended += r.ended;
    batch.tokens += r.written();
    batch.turns += r.turns();
    batch.chains += std::ssize(r.chains);
    ++batch.rollouts;
  }
}

// The chains of the groups' rollouts, without advantages.
void add_data(StepBatch& batch, const RlSettings& settings) {
  const bool declare = share_prompts_by_name(settings.share_prompts) == SharePrompts::backward;
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    const RolloutGroup& group = batch.groups[g];
    batch.begins.push_back(batch.data.size());
    for (const Rollout& rollout : group.rollouts) {
      const std::size_t first = batch.data.size();
      for (const Chain& chain : rollout.chains) batch.data.push_back(policy_datum(chain, rollout.temperature));
      // All first chains begin with the prompt, whose last token has a target, each rollout its own.
      if (const std::int64_t shared = std::ssize(rollout.chains[0].turns[0].shown) - 1; declare && shared > 0) {
        batch.data[first].prefix_group = static_cast<std::int64_t>(g);
        batch.data[first].shared_prefix = shared;
      }
    }
  }
  batch.begins.push_back(batch.data.size());
}

void add_reference(StepBatch& batch, const StepScores& scores) {
  std::vector<std::vector<float>> logprobs = scores.reference(batch.data);
  for (std::size_t d = 0; d < batch.data.size(); ++d) {
    PolicyDatum& datum = batch.data[d];
    each_trained(datum, [&](std::size_t i) { batch.reference.add(logprobs[d][i], datum.old_logprobs[i], 0, 0); });
    datum.reference_logprobs = std::move(logprobs[d]);
  }
}

void add_advantages(StepBatch& batch, const RlSettings& settings) {
  if (settings.advantages == kGaeAdvantages) return;  // a critic gives them (rl/critic.h)
  const bool costs = settings.kl_in == "reward" && !batch.data.empty() && !batch.data[0].reference_logprobs.empty();
  std::vector<RewardGroup> rewards;
  std::size_t d = 0;
  for (const RolloutGroup& group : batch.groups) {
    RewardGroup& shaped = rewards.emplace_back();
    for (const Rollout& r : group.rollouts) {
      shaped.rewards.push_back(r.total_reward() + overlong_punishment(r.longest(), settings));
      shaped.tokens.push_back(r.trained());
      if (costs) shaped.costs.emplace_back();
      for (std::size_t c = 0; c < r.chains.size(); ++c) {
        const PolicyDatum& datum = batch.data[d++];
        if (!costs) continue;
        each_trained(datum, [&](std::size_t i) { shaped.costs.back().push_back(kl_cost(datum.old_logprobs[i], datum.reference_logprobs[i], settings)); });
      }
    }
  }
  const TokenAdvantages advantages = token_advantages(settings.advantages, rewards);
  d = 0;
  for (std::size_t g = 0; g < batch.groups.size(); ++g)
    for (std::size_t j = 0; j < batch.groups[g].rollouts.size(); ++j) {
      std::size_t t = 0;  // the rollout's trained tokens go on from chain to chain
      for (std::size_t c = 0; c < batch.groups[g].rollouts[j].chains.size(); ++c) {
        PolicyDatum& datum = batch.data[d++];
        each_trained(datum, [&](std::size_t i) { datum.advantages[i] = advantages[g][j][t++]; });
      }
    }
}
}  // namespace

double overlong_punishment(std::int64_t tokens, const RlSettings& settings) {
  const std::int64_t over = tokens - (settings.max_tokens - settings.overlong_tokens);
  if (settings.overlong_tokens == 0 || over <= 0) return 0;
  return 0 - settings.overlong_penalty * (static_cast<double>(over) / static_cast<double>(settings.overlong_tokens));
}

double kl_cost(float log_pi, float log_ref, const RlSettings& settings) {
  return settings.kl_coefficient * kl_estimate(settings.kl, static_cast<double>(log_pi) - static_cast<double>(log_ref));
}

StepBatch step_batch(const Environment& environment, RolloutSource& source, const RlSettings& settings, std::int64_t number, const StepScores& scores) {
  StepBatch batch;
  std::vector<RolloutGroup> newest(static_cast<std::size_t>(settings.problems));  // by slot
  std::vector<std::size_t> slots(newest.size());
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = i;
  for (std::int64_t draw = 0; draw <= settings.redraws && !slots.empty(); ++draw) {
    if (draw > 0) batch.redrawn += std::ssize(slots);
    std::vector<RolloutGroup> groups = draw_groups(environment, source, settings, number, slots, draw);
    std::vector<std::size_t> equal;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      count(groups[i], batch);
      if (all_equal(groups[i].rewards())) equal.push_back(slots[i]);
      newest[slots[i]] = std::move(groups[i]);
    }
    slots = std::move(equal);
  }
  double solved = 0;
  for (const RolloutGroup& group : newest)
    solved += std::any_of(group.rollouts.begin(), group.rollouts.end(), [](const Rollout& r) { return r.total_reward() >= 1; });
  batch.pass_at_group = solved / static_cast<double>(newest.size());
  batch.zero_spread = static_cast<double>(slots.size()) / static_cast<double>(newest.size());
  for (double* sum : {&batch.reward, &batch.pass_at_1, &batch.ended}) *sum /= static_cast<double>(batch.rollouts);
  for (RolloutGroup& group : newest) {
    if (settings.redraws > 0 && all_equal(group.rewards())) ++batch.dropped;
    else batch.groups.push_back(std::move(group));
  }
  add_data(batch, settings);
  if (needs_reference(settings) && !batch.data.empty()) add_reference(batch, scores);
  add_advantages(batch, settings);
  return batch;
}

}  // namespace lockstep
