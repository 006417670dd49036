#include "rl/critic.h"

#include <algorithm>
#include <cmath>

#include "base/choice.h"
#include "base/error.h"

namespace lockstep {

std::vector<std::string> critic_names() { return {"none", "full", "adapter"}; }

void check(const CriticSettings& s, const std::string& advantages) {
  check_choice("critic", s.kind, critic_names());
  const bool gae = advantages == kGaeAdvantages;
  if (gae && !s.there()) fail(ErrorCode::invalid_argument, "advantages is gae and critic is none: its values are a critic's; allowed are critic full, adapter");
  if (!gae && s.there())
    fail(ErrorCode::invalid_argument, "critic is {}, and the advantages {} do not use it; allowed is advantages gae (algorithm ppo), or critic none", s.kind,
         advantages);
  if (!s.there()) return;
  const auto in_range = [](std::string_view name, auto value, auto low, auto high) {
    if (!(value >= low && value <= high)) fail(ErrorCode::invalid_argument, "{} is {}, allowed is {} to {}", name, value, low, high);
  };
  in_range("critic_rank", s.rank, std::int64_t{1}, std::int64_t{256});
  in_range("critic_warmup", s.warmup, std::int64_t{0}, std::int64_t{1'000'000'000});
  in_range("critic_epochs", s.epochs, std::int64_t{1}, std::int64_t{1000});
  in_range("critic_learning_rate", s.learning_rate, 0.0, 1e3);
  in_range("value_clip", s.clip, 0.0, 1e6);
  check(s.gae);
}

std::string describe(const CriticSettings& s) {
  if (!s.there()) return {};
  const GaeSettings& g = s.gae;
  std::string text = fmt::format(" critic {} {} epochs {} learning_rate {} gamma {} lambda {}", s.kind, s.warmup, s.epochs, s.learning_rate, g.gamma, g.lambda);
  if (s.kind == "adapter") text += fmt::format(" critic_rank {}", s.rank);
  if (!s.model.empty()) text += fmt::format(" critic_model {}", s.model);
  if (s.clip > 0) text += fmt::format(" value_clip {}", s.clip);
  if (s.bootstrap) text += " bootstrap";
  if (!g.carry) text += " chain_value terminal";
  if (g.critic_lambda) text += fmt::format(" critic_lambda {}", *g.critic_lambda);
  if (g.length_alpha > 0) text += fmt::format(" lambda_length {}", g.length_alpha);
  if (!g.whiten) text += " whiten off";
  return text;
}

nlohmann::ordered_json to_json(const CriticFigures& f) {
  return {{"value_loss", f.value_loss},
          {"explained_variance", f.explained_variance},
          {"mean_value", f.mean_value},
          {"mean_return", f.mean_return},
          {"values_held", f.held},
          {"critic_gradient_norm", f.gradient_norm},
          {"advantage_min", f.advantage_low},
          {"advantage_p10", f.advantage_tenth},
          {"advantage_median", f.advantage_median},
          {"advantage_p90", f.advantage_ninetieth},
          {"advantage_max", f.advantage_high}};
}

namespace {
double average_of(const std::vector<double>& all) {
  double sum = 0;
  for (const double x : all) sum += x;
  return all.empty() ? 0 : sum / static_cast<double>(all.size());
}
double spread_of(const std::vector<double>& all) {
  const double mean = average_of(all);
  std::vector<double> squares;
  for (const double x : all) squares.push_back((x - mean) * (x - mean));
  return average_of(squares);
}

// The states before the chain's trained tokens, and, with `behind`, the state after its last token.
ValueDatum states_of(const PolicyDatum& policy, bool behind) {
  ValueDatum datum;
  datum.tokens = policy.tokens;
  datum.weights = policy.weights;
  if (behind) datum.tokens.push_back(policy.targets.back()), datum.weights.push_back(1.0f);
  return datum;
}
}  // namespace

void Critic::judge(StepBatch& batch, const RlSettings& settings) {
  data_.clear();
  figures_ = {};
  const auto cut_off = [&](const Rollout& rollout) { return settings_.bootstrap && !rollout.ended; };
  for (const RolloutGroup& group : batch.groups)
    for (const Rollout& rollout : group.rollouts)
      for (std::size_t c = 0; c < rollout.chains.size(); ++c)
        data_.push_back(states_of(batch.data[data_.size()], cut_off(rollout) && c + 1 == rollout.chains.size()));
  batch.values = port_.values(data_);

  const bool costs = needs_reference(settings) && settings.kl_in == "reward";
  std::vector<GaeRollout> rollouts;
  std::size_t d = 0;
  for (const RolloutGroup& group : batch.groups)
    for (const Rollout& rollout : group.rollouts) {
      GaeRollout& judged = rollouts.emplace_back();
      for (const Chain& chain : rollout.chains) {
        const PolicyDatum& policy = batch.data[d];
        GaeChain& own = judged.chains.emplace_back(GaeChain{.tokens = {}, .window = judged.chains.size()});
        each_trained(policy, [&](std::size_t i) {
          GaeToken& token = own.tokens.emplace_back();
          token.value = static_cast<double>(batch.values[d][i]);
          if (costs) token.reward = 0 - kl_cost(policy.old_logprobs[i], policy.reference_logprobs[i], settings);
        });
        std::size_t end = 0;  // what a turn brought comes with its last token
        for (const Turn& turn : chain.turns)
          if (turn.trained) own.tokens[(end += turn.tokens.size()) - 1].reward += turn.reward;
        ValueDatum& states = data_[d];
        states.values = batch.values[d];
        states.returns.assign(states.tokens.size(), 0.0f);
        ++d;
      }
      judged.reward = rollout.reward + overlong_punishment(rollout.longest(), settings);
      if (!cut_off(rollout)) continue;
      judged.bootstrap = static_cast<double>(batch.values[d - 1].back());
      data_[d - 1].weights.back() = 0;  // nobody knows what it should have been
      batch.values[d - 1].pop_back();
    }
  const GaeBatch estimates = estimate_gae(rollouts, settings_.gae);

  std::vector<double> seen, returns, left, advantages;
  d = 0;
  for (std::size_t r = 0; r < rollouts.size(); ++r)
    for (std::size_t c = 0; c < rollouts[r].chains.size(); ++c, ++d) {
      const std::vector<double>&own = estimates.advantages[r][c], &wanted = estimates.returns[r][c];
      std::size_t t = 0;
      each_trained(batch.data[d], [&](std::size_t i) {
        batch.data[d].advantages[i] = static_cast<float>(own[t]);
        data_[d].returns[i] = static_cast<float>(wanted[t]);
        const double value = rollouts[r].chains[c].tokens[t].value;
        seen.push_back(value), returns.push_back(wanted[t]), left.push_back(wanted[t] - value), advantages.push_back(own[t]);
        ++t;
      });
    }
  const double variance = spread_of(returns);
  figures_.explained_variance = variance > 0 ? 1 - spread_of(left) / variance : 0;
  figures_.mean_value = average_of(seen);
  figures_.mean_return = average_of(returns);
  std::sort(advantages.begin(), advantages.end());
  const auto quantile = [&](std::size_t tenths) { return advantages.empty() ? 0 : advantages[(advantages.size() - 1) * tenths / 10]; };
  figures_.advantage_low = quantile(0), figures_.advantage_tenth = quantile(1), figures_.advantage_median = quantile(5);
  figures_.advantage_ninetieth = quantile(9), figures_.advantage_high = quantile(10);
}

CriticFigures Critic::learn(const OptimizerStep& optimizer) {
  OptimizerStep own = optimizer;
  own.learning_rate = settings_.learning_rate;
  const auto epochs = static_cast<double>(settings_.epochs);
  for (std::int64_t e = 0; e < settings_.epochs && !data_.empty(); ++e) {
    const ValueResult got = port_.forward_backward(data_, settings_.clip);
    figures_.value_loss += got.loss / epochs;
    figures_.held += got.held / epochs;
    figures_.gradient_norm += port_.optim_step(own) / epochs;
  }
  return figures_;
}

}  // namespace lockstep
