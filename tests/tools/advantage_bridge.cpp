// Advantages for tests in another language: one JSON line {"name", "groups": [{"rewards", "tokens"}]} in, one with the advantages by group out, or
// {"error"}. With "costs" in a group (by rollout and token) they are by group, rollout and token.
//   advantage_bridge < requests
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "rl/advantages/advantages.h"

int main() {
  using namespace lockstep;
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json answer;
    try {
      const nlohmann::json request = nlohmann::json::parse(line);
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
