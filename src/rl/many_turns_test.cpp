// A step over rollouts of many turns, with test doubles. With a real engine and trainer: jobs/lockbox_job_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "base/error.h"
#include "rl/lockbox_test_tools.h"
#include "rl/policy_training.h"

namespace lockstep {
namespace {

using ManyTurnsTest = GameTest;

// Every token of the policy is trained once, and a differing bit is named with its window.
TEST_F(ManyTurnsTest, AreTrained) {
  PolicyTraining one_answer(environment, tokenizer, sampler, trainer, settings);
  EXPECT_FALSE(to_json(one_answer.step(0, {}), settings).contains("turns"));
  const auto lockbox = make_environment("lockbox");
  LockboxPlayer player(tokenizer);
  player.right = 0.97;
  settings.environment = "lockbox";
  settings.compact_at = 72;
  struct OneBit : FakeTrainer {
    using FakeTrainer::FakeTrainer;
    PolicyResult forward_backward(const std::vector<PolicyDatum>& fed, const PolicyLoss& with) override {
      PolicyResult result = FakeTrainer::forward_backward(fed, with);
      if (datum) result.logprobs[*datum].back() = std::nextafter(result.logprobs[*datum].back(), 0.0f);
      return result;
    }
    std::optional<std::size_t> datum;
  } own(player);
  PolicyTraining training(*lockbox, tokenizer, player, own, settings);
  std::size_t later = 0, place = 0;  // a datum that is a rollout's second window
  const PolicyStep s = training.step(0, {}, [&](const StepRollouts& seen) {
    for (const RolloutGroup& group : seen.groups)
      for (const Rollout& rollout : group.rollouts) {
        if (rollout.chains.size() > 1) later = place + 1;
        place += rollout.chains.size();
      }
  });
  ASSERT_GT(later, 0u);
  EXPECT_EQ(s.kl.different_bits, 0);
  EXPECT_EQ(s.kl.tokens, s.tokens);
  EXPECT_EQ(own.loss.normaliser, static_cast<double>(s.tokens));  // one token, one weight
  EXPECT_GT(s.turns, 5);
  EXPECT_GT(s.chains, 1);
  EXPECT_EQ(to_json(s, settings)["turns"], s.turns);
  EXPECT_EQ(to_json(s, settings)["chains"], s.chains);
  own.datum = later;
  player.version = own.version = 0;
  PolicyTraining again(*lockbox, tokenizer, player, own, settings);
  try {
    again.step(0, {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find(", in its context window 1, of the problem"), std::string::npos) << e.message();
  }
}

}  // namespace
}  // namespace lockstep
