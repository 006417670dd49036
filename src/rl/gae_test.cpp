// Advantages over chains: hand-made numbers, and what must change nothing: where tokens that are not trained stand, and where a rollout is cut into
// chains. Against TRL's and verl's ways of computing: tests/oracle/test_gae.py.
#include "rl/gae.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep {
namespace {

GaeRollout one_chain(const std::vector<double>& values, double reward) {
  GaeRollout rollout{.chains = {{}}, .reward = reward};
  for (const double v : values) rollout.chains[0].tokens.push_back({.value = v});
  return rollout;
}

std::vector<double> flat(const std::vector<std::vector<double>>& chains, const GaeRollout& rollout) {
  std::vector<double> all;
  for (std::size_t c = 0; c < chains.size(); ++c)
    for (std::size_t i = 0; i < chains[c].size(); ++i)
      if (rollout.chains[c].tokens[i].trained) all.push_back(chains[c][i]);
  return all;
}

TEST(Gae, IsTheRewardMinusTheValueWhereNothingDecays) {
  const GaeBatch e = estimate_gae({one_chain({0.25, 0.5, 0.75}, 1)}, {.whiten = false});
  EXPECT_EQ(e.advantages[0][0], (std::vector<double>{0.75, 0.5, 0.25}));
  EXPECT_EQ(e.returns[0][0], (std::vector<double>{1, 1, 1}));
}

TEST(Gae, LambdaZeroLooksOneStepAhead) {
  const GaeBatch e = estimate_gae({one_chain({0.25, 0.5, 0.75}, 1)}, {.gamma = 0.5, .lambda = 0, .critic_lambda = 1, .whiten = false});
  EXPECT_EQ(e.advantages[0][0], (std::vector<double>{0, -0.125, 0.25}));
  EXPECT_EQ(e.returns[0][0], (std::vector<double>{0.25, 0.5, 1}));  // gamma alone
}

TEST(Gae, LambdaByLength) {
  const GaeRollout rollout = one_chain({0.1, 0.2, 0.3, 0.4}, 1);
  EXPECT_EQ(estimate_gae({rollout}, {.lambda = 1, .length_alpha = 0.5, .whiten = false}).advantages,
            estimate_gae({rollout}, {.lambda = 0.5, .critic_lambda = 1, .whiten = false}).advantages);
  // Of a rollout too short for alpha it is 0, not below.
  EXPECT_EQ(estimate_gae({rollout}, {.length_alpha = 0.1, .whiten = false}).advantages, estimate_gae({rollout}, {.lambda = 0, .whiten = false}).advantages);
}

TEST(Gae, ACutRolloutGoesOnWithTheValueBehindIt) {
  GaeRollout cut = one_chain({0.5, 0.5}, 0);
  cut.bootstrap = 0.5;
  EXPECT_EQ(estimate_gae({cut}, {.whiten = false}).advantages[0][0], (std::vector<double>{0, 0}));
  cut.bootstrap.reset();
  EXPECT_EQ(estimate_gae({cut}, {.whiten = false}).advantages[0][0], (std::vector<double>{-0.5, -0.5}));
}

TEST(Gae, ChainsCarryTheirValueOrEndWithTheReward) {
  GaeRollout rollout{.chains = {{.tokens = {{.value = 0.25}}}, {.tokens = {{.trained = false}, {.value = 0.5}}, .window = 1}}, .reward = 1};
  const GaeSettings one_step{.lambda = 0, .whiten = false};
  EXPECT_EQ(flat(estimate_gae({rollout}, one_step).advantages[0], rollout), (std::vector<double>{0.25, 0.5}));
  GaeSettings terminal = one_step;
  terminal.carry = false;
  EXPECT_EQ(flat(estimate_gae({rollout}, terminal).advantages[0], rollout), (std::vector<double>{0.75, 0.5}));
  // A sub-agent between the two parts of its parent: carried through it; ended, the parent is one window.
  rollout.chains.push_back({.tokens = {{.value = 0.125}}, .window = 0});
  EXPECT_EQ(flat(estimate_gae({rollout}, one_step).advantages[0], rollout), (std::vector<double>{0.25, -0.375, 0.875}));
  EXPECT_EQ(flat(estimate_gae({rollout}, terminal).advantages[0], rollout), (std::vector<double>{-0.125, 0.5, 0.875}));
}

// Bits, over random rollouts: tokens that are not trained put anywhere, and cuts into chains anywhere, change nothing; another value does.
TEST(Gae, MaskedTokensAndCutsChangeNoBit) {
  RandomSequence random(7, RandomStream::shuffle, 0);
  const GaeSettings settings{.gamma = 0.99, .lambda = 0.9, .critic_lambda = 1, .length_alpha = 0.2};
  for (int round = 0; round < 50; ++round) {
    std::vector<GaeRollout> plain, cut;
    for (int r = 0; r < 4; ++r) {
      std::vector<double> values(1 + random.below(20));
      for (double& v : values) v = random.uniform();
      plain.push_back(one_chain(values, static_cast<double>(random.below(2))));
      GaeRollout& other = cut.emplace_back(GaeRollout{.chains = {{}}, .reward = plain.back().reward});
      for (const double v : values) {
        while (random.below(3) == 0) other.chains.back().tokens.push_back({.trained = false, .value = 1e9});
        if (random.below(4) == 0) other.chains.push_back({.tokens = {}, .window = other.chains.size()});
        other.chains.back().tokens.push_back({.value = v});
      }
      other.chains.back().tokens.push_back({.trained = false});
    }
    const GaeBatch want = estimate_gae(plain, settings), got = estimate_gae(cut, settings);
    for (std::size_t r = 0; r < plain.size(); ++r) {
      EXPECT_EQ(flat(got.advantages[r], cut[r]), want.advantages[r][0]) << round;
      EXPECT_EQ(flat(got.returns[r], cut[r]), want.returns[r][0]) << round;
    }
    GaeSettings ended = settings;
    ended.carry = false;
    if (cut[0].chains.size() > 2) {
      EXPECT_NE(flat(estimate_gae(cut, ended).advantages[0], cut[0]), want.advantages[0][0]) << round;
    }
  }
}

TEST(Gae, RewardsOfToolsBelongToTheTokenBefore) {
  GaeRollout rollout{.chains = {{.tokens = {{.trained = false, .reward = 2}, {.value = 0, .reward = 1}, {.trained = false, .reward = 4}, {.value = 0}}}}};
  EXPECT_EQ(flat(estimate_gae({rollout}, {.lambda = 0, .whiten = false}).advantages[0], rollout), (std::vector<double>{7, 0}));
}

TEST(Gae, WhitensOverTheBatchAndKnowsItsCorners) {
  const GaeBatch e = estimate_gae({one_chain({0}, 1), one_chain({0}, 0), one_chain({0, 0}, 0.5)}, {});
  double sum = 0, squares = 0;
  for (const auto& rollout : e.advantages)
    for (const double a : rollout[0]) sum += a, squares += a * a;
  EXPECT_NEAR(sum, 0, 1e-15);
  EXPECT_NEAR(squares / 3, 1, 1e-6);
  // All equal, one token, none trained, nothing at all.
  EXPECT_EQ(estimate_gae({one_chain({0.5, 0.5}, 1)}, {}).advantages[0][0], (std::vector<double>{0, 0}));
  EXPECT_EQ(estimate_gae({one_chain({0.5}, 1)}, {}).advantages[0][0], std::vector<double>{0});
  GaeRollout masked = one_chain({0.5}, 1);
  masked.chains[0].tokens[0].trained = false;
  EXPECT_EQ(estimate_gae({masked}, {}).returns[0][0], std::vector<double>{0});
  EXPECT_TRUE(estimate_gae({}, {}).advantages.empty());
}

TEST(Gae, RefusesWhatIsNoNumber) {
  EXPECT_THROW(estimate_gae({one_chain({std::numeric_limits<double>::quiet_NaN()}, 1)}, {}), Error);
  EXPECT_THROW(estimate_gae({one_chain({0}, std::numeric_limits<double>::infinity())}, {}), Error);
  EXPECT_THROW(estimate_gae({}, {.gamma = 1.5}), Error);
  EXPECT_THROW(estimate_gae({}, {.critic_lambda = -0.1}), Error);
  EXPECT_THROW(estimate_gae({}, {.length_alpha = -1}), Error);
}

}  // namespace
}  // namespace lockstep
