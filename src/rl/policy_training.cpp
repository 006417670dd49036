#include "rl/policy_training.h"

#include <bit>
#include <chrono>

#include "base/error.h"

namespace lockstep {
namespace {
using Clock = std::chrono::steady_clock;
double seconds_between(Clock::time_point a, Clock::time_point b) { return std::chrono::duration<double>(b - a).count(); }
}  // namespace

nlohmann::ordered_json to_json(const PolicyStep& s, const RlSettings& settings) {
  const double seconds = s.rollout_seconds + s.critic_seconds + s.train_seconds;
  nlohmann::ordered_json json{{"step", s.step + 1},
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
  if (settings.compact_at > 0 || s.turns != 1) {
    json["turns"] = s.turns;
    json["chains"] = s.chains;
  }
  if (settings.epochs * settings.mini_batches > 1) {
    json["updates"] = s.updates;
    json["policy_k3"] = s.drift.k3();
    json["policy_clipped"] = s.drift.clipped_share();
    if (settings.stop_kl > 0) json["mini_batches_skipped"] = s.skipped;
  }
  if (needs_reference(settings)) {
    json["reference_k1"] = s.reference.k1();
    json["reference_k3"] = s.reference.k3();
  }
  if (needs_proximal(settings)) json["proximal_forwards"] = s.proximal_forwards;
  if (settings.critic.there()) {
    json.update(to_json(s.critic));
    json["critic_seconds"] = s.critic_seconds;
  }
  if (settings.redraws > 0) {
    json["groups_redrawn"] = s.redrawn;
    json["groups_dropped"] = s.dropped;
  }
  return json;
}

PolicyTraining::PolicyTraining(const Environment& environment, const Tokenizer& tokenizer, Sampler& sampler, TrainerPort& trainer, const RlSettings& settings,
                               const PolicyTrainingOptions& options)
    : source_(environment, tokenizer, sampler), environment_(environment), trainer_(trainer), settings_(settings), options_(options) {
  check(settings);
  exact_ = sampler.profile_digest() == trainer.profile_digest();
  if (settings.critic.there() != (options.critic != nullptr))
    fail(ErrorCode::internal, "critic is {}, and there is {} to ask", settings.critic.kind, options.critic ? "one" : "none");
  if (options.critic) critic_.emplace(*options.critic, settings.critic);
  options_.stop_at_difference = options.stop_at_difference && !options.allow_profile_mix;
  if (sampler.profile_digest() != trainer.profile_digest() && !options.allow_profile_mix)
    fail(ErrorCode::invalid_argument,
         "the sampler's numerics profile has digest {}, the trainer's {}; allowed are equal ones, unless allow_profile_mix says that the mismatch is "
         "wanted",
         sampler.profile_digest(), trainer.profile_digest());
}

void PolicyTraining::refuse_difference(const StepBatch& batch, std::int64_t number, std::size_t datum, std::size_t row, const std::vector<float>& logprobs) {
  trainer_.abandon_gradients();
  std::size_t group = 0, rollout = 0;
  while (batch.begins[group + 1] <= datum) ++group;
  const RolloutGroup& from = batch.groups[group];
  std::size_t chain = datum - batch.begins[group];
  for (; chain >= from.rollouts[rollout].chains.size(); ++rollout) chain -= from.rollouts[rollout].chains.size();
  const std::vector<Chain>& chains = from.rollouts[rollout].chains;
  const std::string window = chains.size() > 1 ? fmt::format(", in its context window {},", chain) : "";
  const float sampled = batch.data[datum].old_logprobs[row], trained = logprobs[row];
  const std::string left = options_.differs ? options_.differs({number, batch.data[datum], row, sampled, trained, logprobs}) : std::string();
  fail(ErrorCode::internal,
       "step {}: token {} of rollout {}{} of the problem '{}' has log-probability {} where it was sampled (bits {:#010x}) and {} in training (bits {:#010x}), "
       "under the same weights; nothing was learned from this step. Please report it; --on-difference report goes on and counts such tokens{}",
       number + 1, row - (chains[chain].turns[0].shown.size() - 1), rollout, window, from.problem.prompt, sampled, std::bit_cast<std::uint32_t>(sampled),
       trained, std::bit_cast<std::uint32_t>(trained), left);
}

void PolicyTraining::train(const StepBatch& batch, std::size_t first, std::size_t count, const OptimizerStep& optimizer, PolicyStep& result,
                           PolicyResult& policy) {
  const bool whole = count == batch.data.size(), moved = result.updates > 0;
  std::vector<PolicyDatum> part;
  if (!whole) part.assign(batch.data.begin() + static_cast<std::ptrdiff_t>(first), batch.data.begin() + static_cast<std::ptrdiff_t>(first + count));
  const std::vector<PolicyDatum>& data = whole ? batch.data : part;
  PolicyLoss loss = policy_loss(settings_);
  std::int64_t tokens = 0;
  for (const PolicyDatum& d : data)
    for (const float w : d.weights) tokens += w != 0;
  // Token-level: every sampled token has the same weight, those of groups without spread that stay included.
  if (settings_.averaging == "token_mean") loss.normaliser = static_cast<double>(tokens);
  PolicyResult got = trainer_.forward_backward(data, loss);

  KlSums kl;
  double entropy = 0;
  for (std::size_t d = 0; d < data.size(); ++d) {
    result.rows += std::ssize(data[d].tokens);
    for (std::size_t i = 0; i < data[d].tokens.size(); ++i) {
      if (data[d].weights[i] == 0) continue;
      kl.add(got.logprobs[d][i], data[d].old_logprobs[i], settings_.clip_low, settings_.clip_high);
      entropy += static_cast<double>(got.entropies[d][i]);
      const bool differs = std::bit_cast<std::uint32_t>(got.logprobs[d][i]) != std::bit_cast<std::uint32_t>(data[d].old_logprobs[i]);
      if (differs && !moved && options_.stop_at_difference) refuse_difference(batch, result.step, first + d, i, got.logprobs[d]);
    }
  }
  (moved ? result.drift : result.kl).add(kl);
  result.truncated += got.truncated;
  if (moved && settings_.stop_kl > 0 && kl.k3() > settings_.stop_kl) {
    trainer_.abandon_gradients();
    result.skipped = 1;
    return;
  }
  result.entropy += entropy / static_cast<double>(tokens);
  result.loss += got.loss;
  result.gradient_norm += trainer_.optim_step(optimizer);
  ++result.updates;
  for (std::size_t d = 0; d < data.size() && policy.logprobs.size() < batch.data.size(); ++d) {
    policy.logprobs.push_back(std::move(got.logprobs[d]));
    policy.entropies.push_back(std::move(got.entropies[d]));
  }
}

// Under one profile the trainer's log-probabilities at the start of the step are the sampler's own bits: no forward is spent on them.
std::int64_t PolicyTraining::add_proximal(StepBatch& batch) {
  std::vector<std::vector<float>> scored;
  if (!exact_) scored = trainer_.score(batch.data);
  for (std::size_t d = 0; d < batch.data.size(); ++d) batch.data[d].proximal_logprobs = exact_ ? batch.data[d].old_logprobs : std::move(scored[d]);
  return std::ssize(scored);
}

PolicyStep PolicyTraining::step(std::int64_t number, const OptimizerStep& optimizer, const std::function<void(const StepRollouts&)>& seen) {
  const auto begin = Clock::now();
  PolicyStep result;
  result.step = number;
  result.learning_rate = optimizer.learning_rate;
  StepBatch batch =
      step_batch(environment_, source_, settings_, number, {.reference = [&](const std::vector<PolicyDatum>& data) { return trainer_.reference(data); }});
  const std::uint64_t version = source_.weights_version();
  if (version != trainer_.weights_version())
    fail(ErrorCode::internal, "the rollouts are of weights version {}, the trainer is at {}: the sampler does not follow it", version,
         trainer_.weights_version());
  result.reward = batch.reward;
  result.pass_at_1 = batch.pass_at_1;
  result.ended = batch.ended;
  result.tokens = batch.tokens;
  result.turns = static_cast<double>(batch.turns) / static_cast<double>(batch.rollouts);
  result.chains = static_cast<double>(batch.chains) / static_cast<double>(batch.rollouts);
  result.pass_at_group = batch.pass_at_group;
  result.zero_spread = batch.zero_spread;
  result.redrawn = batch.redrawn;
  result.dropped = batch.dropped;
  result.reference = batch.reference;
  const auto sampled = Clock::now();
  result.rollout_seconds = seconds_between(begin, sampled);

  if (critic_) {
    critic_->judge(batch, settings_);
    result.critic = critic_->learn(optimizer);
    result.critic_seconds = seconds_between(sampled, Clock::now());
  }
  const auto judged = Clock::now();
  if (number < settings_.critic.warmup) {  // the policy stays as it is
    if (options_.learned) options_.learned(batch.data);
    return result;
  }

  if (needs_proximal(settings_)) result.proximal_forwards = add_proximal(batch);
  PolicyResult policy;
  const auto parts = static_cast<std::size_t>(settings_.mini_batches), groups = batch.groups.size();
  const std::size_t all = static_cast<std::size_t>(settings_.epochs) * parts;
  for (std::size_t m = 0; m < all; ++m) {
    const std::size_t first = batch.begins[m % parts * groups / parts], end = batch.begins[(m % parts + 1) * groups / parts];
    if (first == end) continue;  // its groups are left out
    train(batch, first, end - first, optimizer, result, policy);
    if (result.skipped > 0) {
      result.skipped = static_cast<std::int64_t>(all - m);
      break;
    }
  }
  if (const auto updates = static_cast<double>(result.updates); result.updates > 0)
    for (double* sum : {&result.entropy, &result.loss, &result.gradient_norm}) *sum /= updates;
  result.train_seconds = seconds_between(judged, Clock::now());
  if (options_.learned) options_.learned(batch.data);
  // Of a step that stopped in its first epoch what was not trained has no numbers to show.
  if (seen && policy.logprobs.size() == batch.data.size()) seen({number, version, batch.groups, batch.data, policy, batch.values});
  return result;
}

}  // namespace lockstep
