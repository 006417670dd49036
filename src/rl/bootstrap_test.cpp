#include "rl/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep {
namespace {

TEST(Bootstrap, AMeanHasTheIntervalOfTheNormalLaw) {
  std::vector<double> column(2000, 0.0);
  for (std::size_t i = 0; i < 800; ++i) column[i] = 1;
  const Interval interval = bootstrap_means({column}, 1)[0];
  const double deviation = std::sqrt(0.4 * 0.6 / 2000);
  EXPECT_EQ(interval.value, 0.4);
  EXPECT_NEAR(interval.low, 0.4 - 1.96 * deviation, 0.3 * deviation);
  EXPECT_NEAR(interval.high, 0.4 + 1.96 * deviation, 0.3 * deviation);
}

// Of many data sets, about 95% have an interval that holds the true mean.
TEST(Bootstrap, CoversTheTruth) {
  int covered = 0;
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    RandomSequence random(trial, RandomStream::fuzz);
    std::vector<double> column(100);
    for (double& x : column) x = random.uniform();
    const Interval interval = bootstrap_means({column}, trial, 400)[0];
    covered += interval.low <= 0.5 && 0.5 <= interval.high;
  }
  EXPECT_GE(covered, 180);
  EXPECT_LE(covered, 199);
}

TEST(Bootstrap, TheSeedDecidesAndColumnsShareTheDraws) {
  const std::vector<double> column = {0, 1, 1, 0, 0.5, 0.25, 1, 0};
  const auto a = bootstrap_means({column, column}, 5), b = bootstrap_means({column}, 5), c = bootstrap_means({column}, 6, 50);
  EXPECT_EQ(a[0].low, a[1].low);
  EXPECT_EQ(a[0].high, a[1].high);
  EXPECT_EQ(a[0].low, b[0].low);
  EXPECT_EQ(a[0].value, c[0].value);
  // Published: evaluations are compared across machines.
  EXPECT_EQ(a[0].low, 0.1875);
  EXPECT_EQ(a[0].high, 0.78125);
}

TEST(Bootstrap, CornersAndErrors) {
  const Interval one = bootstrap_means({{0.75}}, 0)[0];
  EXPECT_EQ(one.low, 0.75);
  EXPECT_EQ(one.high, 0.75);
  EXPECT_TRUE(bootstrap_means({}, 0).empty());
  EXPECT_THROW(bootstrap_means({{}}, 0), Error);
  EXPECT_THROW(bootstrap_means({{1, 2}, {1}}, 0), Error);
  EXPECT_TRUE(disjoint({0.3, 0.25, 0.35}, {0.4, 0.36, 0.45}));
  EXPECT_FALSE(disjoint({0.3, 0.25, 0.37}, {0.4, 0.36, 0.45}));
}

}  // namespace
}  // namespace lockstep
