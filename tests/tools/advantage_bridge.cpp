// Advantages for tests in another language: one JSON line {"name", "groups": [{"rewards", "tokens"}]} in, one with the advantages by group out, or
// {"error"}. With "costs" in a group (by rollout and token) they are by group, rollout and token.
// A line {"rollouts": [{"chains": [{"tokens": [{"trained", "value", "reward"}], "window"}], "reward", "bootstrap"}], "settings"} gives
// {"advantages", "returns"} of rl/gae.h.
//   advantage_bridge < requests
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "rl/advantages/advantages.h"
#include "rl/gae.h"

namespace {
using namespace lockstep;

nlohmann::json gae_of(const nlohmann::json& request) {
  std::vector<GaeRollout> rollouts;
  for (const auto& asked : request.at("rollouts")) {
    GaeRollout& rollout = rollouts.emplace_back();
    rollout.reward = asked.at("reward").get<double>();
    if (asked.contains("bootstrap")) rollout.bootstrap = asked.at("bootstrap").get<double>();
    for (const auto& chain : asked.at("chains")) {
      GaeChain& own = rollout.chains.emplace_back();
      own.window = chain.at("window").get<std::size_t>();
      for (const auto& token : chain.at("tokens"))
        own.tokens.push_back({token.at("trained").get<bool>(), token.at("value").get<double>(), token.at("reward").get<double>()});
    }
  }
  const nlohmann::json& s = request.at("settings");
  GaeSettings settings;
  settings.gamma = s.value("gamma", 1.0);
  settings.lambda = s.value("lambda", 1.0);
  if (s.contains("critic_lambda")) settings.critic_lambda = s.at("critic_lambda").get<double>();
  settings.length_alpha = s.value("lambda_length", 0.0);
  settings.carry = s.value("carry", true);
  settings.whiten = s.value("whiten", true);
  const GaeBatch batch = estimate_gae(rollouts, settings);
  return {{"advantages", batch.advantages}, {"returns", batch.returns}};
}
}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json answer;
    try {
      const nlohmann::json request = nlohmann::json::parse(line);
      if (request.contains("rollouts")) {
        std::cout << gae_of(request).dump() << "\n" << std::flush;
        continue;
      }
      std::vector<RewardGroup> groups;
      bool costs = false;
      for (const auto& group : request.at("groups")) {
        groups.push_back({group.at("rewards").get<std::vector<double>>(), group.at("tokens").get<std::vector<std::int64_t>>()});
        if (group.contains("costs")) costs = true, groups.back().costs = group.at("costs").get<std::vector<std::vector<double>>>();
      }
      const auto name = request.at("name").get<std::string>();
      if (costs) answer = token_advantages(name, groups);
      else answer = estimate_advantages(name, groups);
    } catch (const std::exception& e) {
      answer = {{"error", e.what()}};
    }
    std::cout << answer.dump() << "\n" << std::flush;
  }
}
