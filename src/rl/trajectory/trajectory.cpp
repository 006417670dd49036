#include "rl/trajectory/trajectory.h"

#include <algorithm>

namespace lockstep {

std::int64_t Chain::length() const {
  std::int64_t tokens = 0;
  for (const Turn& turn : turns) tokens += std::ssize(turn.shown) + std::ssize(turn.tokens);
  return tokens;
}

std::int64_t Chain::written() const {
  std::int64_t tokens = 0;
  for (const Turn& turn : turns) tokens += std::ssize(turn.tokens);
  return tokens;
}

double Rollout::total_reward() const {
  double sum = 0;
  for (const Chain& chain : chains)
    for (const Turn& turn : chain.turns) sum += turn.reward;
  return sum + reward;
}

std::int64_t Rollout::written() const {
  std::int64_t tokens = 0;
  for (const Chain& chain : chains) tokens += chain.written();
  return tokens;
}

std::int64_t Rollout::trained() const {
  std::int64_t tokens = 0;
  for (const Chain& chain : chains)
    for (const Turn& turn : chain.turns) tokens += turn.trained ? std::ssize(turn.tokens) : 0;
  return tokens;
}

std::int64_t Rollout::longest() const {
  std::int64_t most = 0;
  for (const Chain& chain : chains)
    for (const Turn& turn : chain.turns) most = std::max<std::int64_t>(most, std::ssize(turn.tokens));
  return most;
}

std::int64_t Rollout::turns() const {
  std::int64_t count = 0;
  for (const Chain& chain : chains) count += std::ssize(chain.turns);
  return count;
}

std::vector<double> RolloutGroup::rewards() const {
  std::vector<double> values;
  for (const Rollout& r : rollouts) values.push_back(r.total_reward());
  return values;
}

}  // namespace lockstep
