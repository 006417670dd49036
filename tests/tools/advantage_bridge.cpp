// Advantages for tests in another language: one JSON line {"name", "groups": [{"rewards", "tokens"}]} in, one with the advantages by group out, or
// {"error"}.
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
      for (const auto& group : request.at("groups"))
        groups.push_back({group.at("rewards").get<std::vector<double>>(), group.at("tokens").get<std::vector<std::int64_t>>()});
      answer = estimate_advantages(request.at("name").get<std::string>(), groups);
    } catch (const std::exception& e) {
      answer = {{"error", e.what()}};
    }
    std::cout << answer.dump() << "\n" << std::flush;
  }
}
