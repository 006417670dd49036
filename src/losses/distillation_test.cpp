#include "losses/distillation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

// Values and gradients against torch: tests/oracle/test_distillation.py.
namespace lockstep {
namespace {

TrainSequence two_rows() {
  TrainSequence d;
  d.tokens = {1, 2, 3};
  d.targets_per_row = 2;
  d.targets = {-1, -1, 4, 5, 6, 7};
  d.weights = {0, 0, 1, 1, 0.5f, 0.5f};
  return d;
}
const std::vector<float> kStudent = {0, 0, -0.7f, -1.2f, -0.3f, -2.5f}, kTeacher = {0, 0, -1.0f, -0.9f, -1.5f, -0.4f};

TEST(Distillation, WeighsRowsThatAreTrained) {
  const DistillationSettings settings{.kind = Divergence::reverse, .rest = true};
  TrainSequence d = two_rows();
  const double sum = weigh_by_divergence(settings, d, kStudent, kTeacher, 0.25);
  std::vector<double> first(2), second(2);
  const double a = divergence(settings, std::span(kStudent).subspan(2, 2), std::span(kTeacher).subspan(2, 2), first);
  const double b = divergence(settings, std::span(kStudent).subspan(4, 2), std::span(kTeacher).subspan(4, 2), second);
  EXPECT_EQ(sum, a + 0.5 * b);
  EXPECT_GT(a, 0);
  EXPECT_EQ(d.weights, (std::vector<float>{0, 0, static_cast<float>(-0.25 * first[0]), static_cast<float>(-0.25 * first[1]),
                                           static_cast<float>(-0.25 * 0.5 * second[0]), static_cast<float>(-0.25 * 0.5 * second[1])}));
}

// Over a vocabulary the slopes sum to 0, as those of any function of a softmax may; equal distributions have none.
TEST(Distillation, SlopesOfAVocabulary) {
  for (const std::string& name : divergence_names()) {
    const DistillationSettings settings{.kind = divergence_by_name(name)};
    const std::vector<float> q = {std::log(0.5f), std::log(0.25f), std::log(0.25f)}, p = {std::log(0.125f), std::log(0.5f), std::log(0.375f)};
    std::vector<double> slopes(3);
    EXPECT_GT(divergence(settings, q, p, slopes), 0) << name;
    EXPECT_NEAR(slopes[0] + slopes[1] + slopes[2], 0, 1e-7) << name;
    EXPECT_GT(slopes[0], 0) << name;  // the student has more of it than the teacher
    EXPECT_LT(slopes[1], 0) << name;
    EXPECT_EQ(divergence(settings, p, p, slopes), 0) << name;
  }
}

TEST(Distillation, NothingOverflows) {
  for (const std::string& name : divergence_names())
    for (const bool rest : {false, true}) {
      std::vector<double> slopes(2);
      const std::vector<float> sure = {0, -1000}, other = {-1000, 0};
      EXPECT_TRUE(std::isfinite(divergence({.kind = divergence_by_name(name), .rest = rest}, sure, other, slopes))) << name;
      for (const double slope : slopes) EXPECT_TRUE(std::isfinite(slope)) << name;
    }
}

TEST(Distillation, RefusesWhatHasNoMeaning) {
  TrainSequence d = two_rows();
  d.targets[5] = 6;
  try {
    weigh_by_divergence({}, d, kStudent, kTeacher, 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("token 6 stands twice among the targets of row 2"), std::string::npos) << e.what();
  }
  TrainSequence shorter = two_rows();
  EXPECT_THROW(weigh_by_divergence({}, shorter, std::vector<float>(4), kTeacher, 1), Error);
  EXPECT_THROW(divergence_by_name("forwards"), Error);
}

}  // namespace
}  // namespace lockstep
