#include "rl/gae.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

// A trained token of a rollout, in time.
struct Step {
  std::size_t chain, token;
  double value, reward;
};
// Steps in order of time, each followed by its successor, and what follows the last one.
struct Line {
  std::vector<Step> steps;
  double behind = 0;
};

void check_finite(double x, std::string_view what, std::size_t rollout) {
  if (!std::isfinite(x)) fail(ErrorCode::invalid_argument, "rollout {}: a {} is {}, allowed are finite numbers", rollout, what, x);
}

// The trained tokens of a rollout in time, or (`window`) those of one context window; rewards of others belong to the last one before them.
std::vector<Step> steps_of(const GaeRollout& rollout, const std::size_t* window) {
  std::vector<Step> steps;
  double waiting = 0;  // rewards before the first
  for (std::size_t c = 0; c < rollout.chains.size(); ++c) {
    if (window && rollout.chains[c].window != *window) continue;
    for (std::size_t i = 0; i < rollout.chains[c].tokens.size(); ++i) {
      const GaeToken& token = rollout.chains[c].tokens[i];
      if (token.trained) steps.push_back({c, i, token.value, std::exchange(waiting, 0.0) + token.reward});
      else (steps.empty() ? waiting : steps.back().reward) += token.reward;
    }
  }
  return steps;
}

std::vector<Line> lines_of(const GaeRollout& rollout, bool carry) {
  std::vector<Line> lines;
  if (carry) {
    lines.push_back({steps_of(rollout, nullptr), rollout.bootstrap.value_or(0.0)});
  } else {
    std::map<std::size_t, bool> windows;
    for (const GaeChain& chain : rollout.chains) windows[chain.window] = true;
    const std::size_t last = rollout.chains.empty() ? 0 : rollout.chains.back().window;
    for (const auto& [window, unused] : windows) lines.push_back({steps_of(rollout, &window), window == last ? rollout.bootstrap.value_or(0.0) : 0.0});
  }
  for (Line& line : lines)
    if (!line.steps.empty()) line.steps.back().reward += rollout.reward;
  return lines;
}

// From the last step to the first: d = (r + gamma v') - v, A = d + (gamma lambda) A'.
std::vector<double> advantages_of(const Line& line, double gamma, double lambda) {
  std::vector<double> advantages(line.steps.size());
  const double decay = gamma * lambda;
  double next_value = line.behind, next_advantage = 0;
  for (std::size_t i = line.steps.size(); i-- > 0;) {
    const Step& s = line.steps[i];
    const double ahead = gamma * next_value, delta = (s.reward + ahead) - s.value, later = decay * next_advantage;
    next_advantage = advantages[i] = delta + later;
    next_value = s.value;
  }
  return advantages;
}

// Over the trained tokens of all rollouts in their order; the variance is the sample's, as verl's masked_whiten. Equal ones become +0.
void whiten(GaeNumbers& numbers, const std::vector<GaeRollout>& rollouts) {
  std::vector<double*> all;
  for (std::size_t r = 0; r < rollouts.size(); ++r)
    for (std::size_t c = 0; c < rollouts[r].chains.size(); ++c)
      for (std::size_t i = 0; i < rollouts[r].chains[c].tokens.size(); ++i)
        if (rollouts[r].chains[c].tokens[i].trained) all.push_back(&numbers[r][c][i]);
  if (all.empty()) return;
  constexpr double kVarianceEps = 1e-8;
  bool differ = false;
  double sum = 0, squares = 0;
  for (const double* x : all) sum += *x, differ = differ || *x != *all.front();
  const double mean = sum / static_cast<double>(all.size());
  for (double* x : all) {
    *x = differ ? *x - mean : 0.0;
    const double square = *x * *x;
    squares += square;
  }
  if (!differ) return;
  const double deviation = std::sqrt(squares / static_cast<double>(all.size() - 1) + kVarianceEps);
  for (double* x : all) *x /= deviation;
}

}  // namespace

void check(const GaeSettings& s) {
  for (const auto& [name, value] : {std::pair{"gamma", s.gamma}, {"lambda", s.lambda}, {"critic_lambda", s.critic_lambda.value_or(0)}})
    if (!(value >= 0 && value <= 1)) fail(ErrorCode::invalid_argument, "{} is {}, allowed is 0 to 1", name, value);
  if (!(s.length_alpha >= 0 && s.length_alpha <= 1e6)) fail(ErrorCode::invalid_argument, "lambda_length is {}, allowed is 0 to 1e6", s.length_alpha);
}

GaeBatch estimate_gae(const std::vector<GaeRollout>& rollouts, const GaeSettings& settings) {
  check(settings);
  GaeBatch batch;
  for (std::size_t r = 0; r < rollouts.size(); ++r) {
    const GaeRollout& rollout = rollouts[r];
    check_finite(rollout.reward, "reward", r);
    check_finite(rollout.bootstrap.value_or(0), "bootstrap value", r);
    for (GaeNumbers* numbers : {&batch.advantages, &batch.returns}) {
      auto& own = numbers->emplace_back();
      for (const GaeChain& chain : rollout.chains) own.emplace_back(chain.tokens.size(), 0.0);
    }
    for (const GaeChain& chain : rollout.chains)
      for (const GaeToken& token : chain.tokens) {
        if (token.trained) check_finite(token.value, "value", r);
        check_finite(token.reward, "reward", r);
      }
    for (const Line& line : lines_of(rollout, settings.carry)) {
      const auto n = static_cast<double>(line.steps.size());
      double lambda = settings.lambda;
      if (settings.length_alpha > 0 && n > 0) lambda = std::max(0.0, 1.0 - 1.0 / (settings.length_alpha * n));
      const std::vector<double> policy = advantages_of(line, settings.gamma, lambda);
      const std::vector<double> critic = advantages_of(line, settings.gamma, settings.critic_lambda.value_or(settings.lambda));
      for (std::size_t i = 0; i < line.steps.size(); ++i) {
        const Step& s = line.steps[i];
        batch.advantages[r][s.chain][s.token] = policy[i];
        batch.returns[r][s.chain][s.token] = critic[i] + s.value;
      }
    }
  }
  if (settings.whiten) whiten(batch.advantages, rollouts);
  return batch;
}

}  // namespace lockstep
