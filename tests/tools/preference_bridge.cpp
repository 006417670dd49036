// Preference losses for tests in another language: one JSON line {"settings", "pairs": [[chosen, rejected], ...]} or {"settings", "answers",
// "desirable", "mismatched"} in, where each answer is {"logprob", "reference", "weight"}; one with loss, slopes and rewards each out, or {"error"}.
//   preference_bridge < requests
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "losses/preference_losses.h"

namespace {
using namespace lockstep;
AnswerScore score_of(const nlohmann::json& j) { return {j.at("logprob"), j.value("reference", 0.0), j.at("weight")}; }
nlohmann::json json_of(const PreferenceValue& v) {
  return {{"loss", v.loss},
          {"chosen_slope", v.chosen_slope},
          {"rejected_slope", v.rejected_slope},
          {"chosen_reward", v.chosen_reward},
          {"rejected_reward", v.rejected_reward}};
}
}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json answer = nlohmann::json::array();
    try {
      const nlohmann::json request = nlohmann::json::parse(line), &given = request.at("settings");
      PreferenceSettings settings;
      settings.loss = given.at("loss");
      settings.beta = given.value("beta", preference_row(settings.loss).beta);
      settings.label_smoothing = given.value("label_smoothing", settings.label_smoothing);
      settings.gamma = given.value("gamma", settings.gamma);
      settings.alpha = given.value("alpha", settings.alpha);
      settings.desirable_weight = given.value("desirable_weight", 1.0);
      settings.undesirable_weight = given.value("undesirable_weight", 1.0);
      check(settings);
      if (request.contains("pairs")) {
        for (const auto& pair : request["pairs"]) answer.push_back(json_of(preference_loss(settings, score_of(pair.at(0)), score_of(pair.at(1)))));
      } else {
        std::vector<AnswerScore> mismatched;
        for (const auto& one : request.at("mismatched")) mismatched.push_back(score_of(one));
        const double shift = kto_shift(mismatched);
        for (std::size_t i = 0; i < request.at("answers").size(); ++i)
          answer.push_back(json_of(labelled_loss(settings, score_of(request["answers"][i]), request.at("desirable").at(i).get<bool>(), shift)));
      }
    } catch (const std::exception& e) {
      answer = {{"error", e.what()}};
    }
    std::cout << answer.dump() << "\n" << std::flush;
  }
}
