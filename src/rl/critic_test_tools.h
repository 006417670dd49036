// A critic whose values are known, and the game that it judges (rl_test_tools.h). Tests only.
#pragma once
#include "rl/critic.h"
#include "rl/rl_test_tools.h"

namespace lockstep {

// Values are eighths, so that sums of them and of rewards are exact.
class FakeValues : public ValuePort {
 public:
  std::vector<std::vector<float>> values(const std::vector<ValueDatum>& data) override {
    asked = data;
    std::vector<std::vector<float>> all;
    for (const ValueDatum& d : data) {
      std::vector<float>& own = all.emplace_back(d.tokens.size(), 0.0f);
      for (std::size_t i = 0; i < own.size(); ++i)
        if (d.weights[i] != 0) own[i] = 0.125f * static_cast<float>(1 + i % 7);
    }
    return all;
  }
  ValueResult forward_backward(const std::vector<ValueDatum>& data, double clip) override {
    trained.push_back(data);
    clips.push_back(clip);
    return {.loss = 0.5, .held = 0.25};
  }
  double optim_step(const OptimizerStep& step) override {
    steps.push_back(step);
    return 2;
  }
  std::vector<ValueDatum> asked;
  std::vector<std::vector<ValueDatum>> trained;
  std::vector<double> clips;
  std::vector<OptimizerStep> steps;
};

struct CriticTest : GameTest {
  CriticTest() {
    settings.advantages = std::string(kGaeAdvantages);
    settings.critic.kind = "full";
    settings.critic.gae.whiten = false;
  }
  StepBatch batch() {
    RolloutSource source(environment, tokenizer, sampler);
    return step_batch(environment, source, settings, 0, {.reference = [&](const std::vector<PolicyDatum>& data) { return trainer.reference(data); }});
  }
  // The rewards of the batch's data, in their order.
  static std::vector<double> rewards_of(const StepBatch& batch) {
    std::vector<double> rewards;
    for (const RolloutGroup& group : batch.groups)
      for (const Rollout& rollout : group.rollouts) rewards.push_back(rollout.reward);
    return rewards;
  }
  FakeValues port;
};

}  // namespace lockstep
