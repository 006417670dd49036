// Settings of a critic and of the advantages estimated with it. Plain values.
//   CriticSettings critic; critic.kind = "adapter"; check(critic, "gae");
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rl/gae.h"

namespace lockstep {

// The name of the advantages that a critic gives, beside those of rl/advantages.
inline constexpr std::string_view kGaeAdvantages = "gae";

struct CriticSettings {
  std::string kind = "none";    // critic_names()
  std::string model;            // the folder that it begins from, as a reward model; empty: the policy's, with a new head of zeros
  std::int64_t rank = 8;        // of an adapter
  std::int64_t warmup = 0;      // steps in which the critic learns and the policy stays
  std::int64_t epochs = 1;      // optimizer steps on each step's rollouts
  double learning_rate = 3e-4;  // constant
  double clip = 0;              // how far a value may move within a step and still lower the loss; 0: any distance
  bool bootstrap = false;       // a rollout without an end token is bootstrapped with the critic's value, instead of ending with its reward
  GaeSettings gae;
  bool there() const { return kind != "none"; }
};
std::vector<std::string> critic_names();  // none, full, adapter
// invalid_argument with the field, the value and what is allowed; `advantages`: of the run.
void check(const CriticSettings& settings, const std::string& advantages);
// The settings that decide bits, in the form that describe(RlSettings) appends; empty without a critic.
std::string describe(const CriticSettings& settings);

}  // namespace lockstep
