#include "rl/policy_training.h"

#include <chrono>

#include "base/error.h"

namespace lockstep {
namespace {
using Clock = std::chrono::steady_clock;
double seconds_between(Clock::time_point a, Clock::time_point b) { return std::chrono::duration<double>(b - a).count(); }
}  // namespace

nlohmann::ordered_json to_json(const PolicyStep& s) {
  const double seconds = s.rollout_seconds + s.train_seconds;
  return {{"step", s.step + 1},
          {"reward", s.reward},
          {"pass_at_1", s.pass_at_1},
          {"pass_at_group", s.pass_at_group},
          {"zero_spread", s.zero_spread},
          {"ended", s.ended},
          {"k1", s.kl.k1()},
          {"k2", s.kl.k2()},
          {"k3", s.kl.k3()},
          {"different_bits", s.kl.different_bits},
          {"clipped", s.kl.clipped_share()},
          {"truncated", s.truncated},
          {"largest_log_ratio", s.kl.largest},
          {"entropy", s.entropy},
          {"loss", s.loss},
          {"gradient_norm", s.gradient_norm},
          {"learning_rate", s.learning_rate},
          {"tokens", s.tokens},
          {"rows", s.rows},
          {"rollout_seconds", s.rollout_seconds},
          {"train_seconds", s.train_seconds},
          {"tokens_per_second", seconds > 0 ? static_cast<double>(s.tokens) / seconds : 0.0}};
}

PolicyTraining::PolicyTraining(const Environment& environment, const Tokenizer& tokenizer, Sampler& sampler, TrainerPort& trainer,
                               const RlSettings& settings, bool allow_profile_mix)
    : source_(environment, tokenizer, sampler), environment_(environment), trainer_(trainer), settings_(settings) {
  check(settings);
  if (sampler.profile_digest() != trainer.profile_digest() && !allow_profile_mix)
    fail(ErrorCode::invalid_argument,
         "the sampler's numerics profile has digest {}, the trainer's {}; allowed are equal ones, unless allow_profile_mix says that the mismatch is "
         "wanted",
         sampler.profile_digest(), trainer.profile_digest());
}

PolicyStep PolicyTraining::step(std::int64_t number, const OptimizerStep& optimizer, const std::function<void(const StepRollouts&)>& seen) {
  const auto begin = Clock::now();
  PolicyStep result;
  result.step = number;
  result.learning_rate = optimizer.learning_rate;
  const std::uint64_t first = static_cast<std::uint64_t>(number) * static_cast<std::uint64_t>(settings_.problems);
  std::vector<Problem> problems;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(settings_.problems); ++i)
    problems.push_back(environment_.problem(Split::train, settings_.seed, first + i));
  const auto seed_of = [&](std::size_t i) { return derived_seed(settings_.seed, SeedUse::rollouts, first + i); };
  const std::vector<RolloutGroup> groups = source_.sample(problems, {settings_.rollouts, settings_.temperature, settings_.max_tokens}, seed_of);
  if (source_.weights_version() != trainer_.weights_version())
    fail(ErrorCode::internal, "the rollouts are of weights version {}, the trainer is at {}: the sampler does not follow it",
         source_.weights_version(), trainer_.weights_version());
  const auto sampled = Clock::now();
  result.rollout_seconds = seconds_between(begin, sampled);

  std::vector<PolicyDatum> data;
  double rollouts = 0, solved = 0, flat = 0;
  const bool declare = share_prompts_by_name(settings_.share_prompts) == SharePrompts::backward;
  for (const RolloutGroup& group : groups) {
    const std::vector<double> rewards = group.rewards();
    const std::vector<float> advantages = group_advantages(rewards, settings_.advantages);
    bool any = false;
    for (std::size_t j = 0; j < group.rollouts.size(); ++j) {
      const Rollout& r = group.rollouts[j];
      result.reward += r.reward;
      result.pass_at_1 += r.reward >= 1;
      result.ended += r.ended;
      result.tokens += static_cast<std::int64_t>(r.tokens.size());
      any = any || r.reward >= 1;
      rollouts += 1;
      data.push_back(policy_datum(group.prompt, r, advantages[j]));
      // The last token of the prompt has a target, each rollout its own.
      if (const auto shared = static_cast<std::int64_t>(group.prompt.size()) - 1; declare && shared > 0) {
        data.back().prefix_group = &group - groups.data();
        data.back().shared_prefix = shared;
      }
      result.rows += static_cast<std::int64_t>(data.back().tokens.size());
    }
    solved += any;
    flat += all_equal(rewards);
  }
  result.reward /= rollouts;
  result.pass_at_1 /= rollouts;
  result.ended /= rollouts;
  result.pass_at_group = solved / static_cast<double>(groups.size());
  result.zero_spread = flat / static_cast<double>(groups.size());

  // Token-level loss: every sampled token of the batch has the same weight, those of groups without spread included.
  const PolicyLoss loss{.clip_low = static_cast<float>(settings_.clip_low),
                        .clip_high = static_cast<float>(settings_.clip_high),
                        .normaliser = static_cast<double>(result.tokens),
                        .importance_cap = settings_.importance_cap};
  const PolicyResult policy = trainer_.forward_backward(data, loss);
  result.loss = policy.loss;
  result.truncated = policy.truncated;
  double entropy = 0;
  for (std::size_t d = 0; d < data.size(); ++d) {
    for (std::size_t i = 0; i < data[d].tokens.size(); ++i) {
      if (data[d].weights[i] == 0) continue;
      result.kl.add(policy.logprobs[d][i], data[d].old_logprobs[i], settings_.clip_low, settings_.clip_high);
      entropy += static_cast<double>(policy.entropies[d][i]);
    }
  }
  result.entropy = entropy / static_cast<double>(result.tokens);
  result.gradient_norm = trainer_.optim_step(optimizer);
  result.train_seconds = seconds_between(sampled, Clock::now());
  if (seen) seen({number, source_.weights_version(), groups, data, policy});
  return result;
}

}  // namespace lockstep
