// Data of steps over pairs and with a teacher: what is shared, which way each answer is pushed, and that the steps move the model.
#include "parity/taught_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/archs/config_test_tools.h"
#include "parity/bench_trainer.h"

namespace lockstep {
namespace {

struct TaughtSteps : testing::Test {
  TaughtSteps() {
    model.model = make_model(small_config());
    model.masters = initial_weights(model.model->manifest(), 7, 0.25);
    for (std::int32_t s = 0; s < 5; ++s) {
      std::vector<std::int32_t> tokens;
      for (std::int32_t t = 0; t < 8 + 3 * s; ++t) tokens.push_back((11 * t + 5 * s) % 31);
      data.push_back(TrainSequence::next_token(tokens));
    }
  }
  // The loss of a step, and the largest number of its gradient.
  std::pair<double, float> stepped(const LossOptions& loss) const {
    Runtime runtime({.threads = 1}, model.model, profile_by_name("cpu-bf16w"), 64);
    BenchTrainer trainer(runtime, model, {});
    const double value = trainer.forward_backward(data, loss).loss;
    float largest = 0;
    for (const std::vector<float>& image : trainer.gradient_images())
      for (const float g : image) largest = std::max(largest, std::abs(g));
    return {value, largest};
  }

  ParityModel model;
  std::vector<TrainSequence> data;
};

TEST_F(TaughtSteps, PairsShareABeginningAndArePushedApart) {
  const std::vector<TrainSequence> before = data;
  make_pairs(data);
  ASSERT_EQ(data.size(), 4u);
  for (std::size_t i = 0; i < data.size(); i += 2) {
    const std::size_t shared = before[i].tokens.size() / 2;  // the first is the shorter one
    EXPECT_TRUE(std::equal(data[i].tokens.begin(), data[i].tokens.begin() + static_cast<std::ptrdiff_t>(shared), data[i + 1].tokens.begin()));
    EXPECT_EQ(data[i].tokens, before[i].tokens);
    EXPECT_EQ(data[i + 1].tokens.size(), before[i + 1].tokens.size());
    EXPECT_EQ(data[i + 1].targets.back(), before[i + 1].targets.back());
  }
  std::vector<std::vector<float>> logprobs;
  for (TrainSequence& d : data) {
    d.reference_logprobs.assign(d.tokens.size(), -3);
    d.weights[0] = 0;
    logprobs.emplace_back(d.tokens.size(), -3.0f);
  }
  weigh_pairs(data, logprobs);
  for (std::size_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(data[i].weights[0], 0);
    for (std::size_t t = 1; t < data[i].weights.size(); ++t) EXPECT_FLOAT_EQ(data[i].weights[t], i % 2 == 0 ? 0.05f : -0.05f);  // beta / 2 where both are equal
  }
  EXPECT_GT(stepped({.normaliser = 1}).second, 0);
}

TEST_F(TaughtSteps, ATeacherIsAnotherModel) {
  teach(model, profile_by_name("cpu-bf16w"), data);
  for (const TrainSequence& d : data) {
    EXPECT_EQ(d.teacher, data[0].teacher);
    EXPECT_EQ(d.teacher_states.size(), d.tokens.size() * 48);
  }
  LossOptions loss;
  loss.kind = LossKind::divergence;
  loss.parameters.divergence = Divergence::jensen_shannon;
  const auto [value, largest] = stepped(loss);
  EXPECT_GT(value, 0.001);
  EXPECT_LT(value, 0.7);  // log 2 at most
  EXPECT_GT(largest, 0);
}

}  // namespace
}  // namespace lockstep
