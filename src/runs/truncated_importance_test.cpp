// The weights against numbers from NumPy (float64), and the cases that must change nothing.
#include "runs/truncated_importance.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

TrainSequence sequence(const std::vector<float>& sampler) {
  TrainSequence s;
  s.tokens.assign(sampler.size(), 1);
  s.targets.assign(sampler.size(), 2);
  s.weights.assign(sampler.size(), 1.0f);
  s.advantages.assign(sampler.size(), 0.5f);
  s.old_logprobs = sampler;
  return s;
}

// o = np.float32([-1, -2.5, -0.125, -3, -8, -0.5]); q = np.float32([-1, -2, -1.5, -3.25, -1, -0.75])
// np.float32(np.minimum(np.exp(o.astype(np.float64) - q), 2.0))
TEST(TruncatedImportance, IsTheFormula) {
  const std::vector<float> trainer = {-1, -2.5f, -0.125f, -3, -8, -0.5f}, sampler = {-1, -2, -1.5f, -3.25f, -1, -0.75f};
  const std::vector<float> want = {1.0f, 0.60653067f, 2.0f, 1.2840254f, 9.1188197e-4f, 1.2840254f};
  std::vector<TrainSequence> data = {sequence(sampler)};
  EXPECT_EQ(weigh_by_importance(data, {trainer}, 2.0), 1);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(data[0].weights[i], want[i], 1e-7 * want[i]) << i;
  EXPECT_EQ(data[0].old_logprobs, trainer);
}

TEST(TruncatedImportance, EqualNumbersAndRowsThatAreNotTrainedStayAsTheyAre) {
  std::vector<TrainSequence> data = {sequence({-1, -0.3f, -7})};
  data[0].weights[1] = 0;
  data[0].targets[2] = -1;
  const std::vector<TrainSequence> before = data;
  EXPECT_EQ(weigh_by_importance(data, {{-1, -5, -5}}, 1.0), 0);
  EXPECT_EQ(data[0].weights, before[0].weights);
  EXPECT_EQ(data[0].old_logprobs, before[0].old_logprobs);
}

TEST(TruncatedImportance, FarAwayIsTheCapOrNothing) {
  std::vector<TrainSequence> data = {sequence({-1000, -1})};
  EXPECT_EQ(weigh_by_importance(data, {{-1, -1000}}, 3.0), 1);
  EXPECT_EQ(data[0].weights[0], 3.0f);
  EXPECT_LT(data[0].weights[1], 1e-30f);
  EXPECT_TRUE(std::isfinite(data[0].weights[1]));
}

}  // namespace
}  // namespace lockstep
