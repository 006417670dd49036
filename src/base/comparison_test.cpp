// What the comparisons of the other tests must never admit.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/comparison_test_tools.h"

namespace lockstep {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
constexpr double kAny = 1e300;  // the widest tolerance a test could have

bool admitted(const std::vector<float>& got, const std::vector<float>& want) { return relative_error(got, want) <= kAny || absolute_error(got, want) < kAny; }

TEST(Comparison, IsTheLargestErrorOfTheLargestValue) {
  const std::vector<float> want = {1, -4, 2};
  EXPECT_EQ(absolute_error(std::vector<float>{1.5f, -4, 2.25f}, want), 0.5);
  EXPECT_EQ(relative_error(std::vector<float>{1.5f, -4, 2.25f}, want), 0.125);
  EXPECT_EQ(relative_error(want, std::vector<double>{1, -4, 2}), 0);
  EXPECT_EQ(relative_error(std::vector<float>{0, 0}, std::vector<float>{0, 0}), 0);
  EXPECT_TRUE(admitted(want, want));  // the control of what follows
  LargestError error;
  EXPECT_TRUE(error.add(1, 1));
  EXPECT_FALSE(error.add(2, 2));
  EXPECT_TRUE(error.add(3, 2));
  EXPECT_FALSE(error.add(2.5, 2));
}

TEST(Comparison, NoToleranceAdmitsANan) {
  for (const std::size_t at : {0, 1, 2}) {
    std::vector<float> bad = {1, -4, 2};
    const std::vector<float> good = bad;
    bad[at] = kNan;
    EXPECT_FALSE(admitted(bad, good)) << at;
    EXPECT_FALSE(admitted(good, bad)) << at;
    EXPECT_FALSE(admitted(bad, bad)) << at;
    EXPECT_FALSE(relative_error(bad, good) > 0) << "nor does a control that wants a difference";
  }
  EXPECT_FALSE(admitted({kNan, kNan}, {1, 2}));
  EXPECT_FALSE(admitted({kNan}, {0}));
  double worst = 0;
  for (const double error : {0.5, static_cast<double>(kNan), 0.25}) worst = worse_of(worst, error);
  EXPECT_TRUE(std::isnan(worst));
}

TEST(Comparison, NoToleranceAdmitsAnInfinityOrZerosThatAreNone) {
  EXPECT_FALSE(admitted({kInfinity, 1}, {1, 1}));
  EXPECT_FALSE(admitted({1, 1}, {kInfinity, 1}));
  EXPECT_FALSE(admitted({kInfinity, 1}, {kInfinity, 1}));
  EXPECT_FALSE(relative_error(std::vector<float>{1}, std::vector<float>{0}) <= kAny);
}

TEST(Comparison, NoToleranceAdmitsUnequalCountsOrNothing) {
  EXPECT_FALSE(admitted({1, 2}, {1, 2, 3}));
  EXPECT_FALSE(admitted({1, 2, 3}, {1, 2}));
  EXPECT_FALSE(admitted({}, {1}));
  EXPECT_FALSE(admitted({}, {}));
}

}  // namespace
}  // namespace lockstep
