// Derivatives against finite differences, and the corners where a formula could cancel or overflow. Values against torch: tests/oracle.
#include "losses/preference_losses.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "runs/preferences/preference_step.h"

namespace lockstep {
namespace {

PreferenceSettings with_loss(const std::string& loss) {
  PreferenceSettings settings;
  settings.loss = loss;
  settings.beta = preference_row(loss).beta;
  return settings;
}

TEST(PreferenceLosses, SlopesAreThoseOfTheValues) {
  constexpr double kStep = 1e-6;
  for (const PreferenceRow& row : preference_rows()) {
    if (!row.pairs) continue;
    const PreferenceSettings settings = with_loss(std::string(row.name));
    for (const double l : {-1.0, -7.5, -30.0}) {
      AnswerScore chosen{l, row.reference ? l - 0.7 : 0, 5}, rejected{l - 2, row.reference ? l - 4 : 0, 7};
      const PreferenceValue v = preference_loss(settings, chosen, rejected);
      const auto moved = [&](double c, double r) {
        AnswerScore a = chosen, b = rejected;
        a.logprob += c, b.logprob += r;
        return preference_loss(settings, a, b).loss;
      };
      EXPECT_NEAR(v.chosen_slope, (moved(kStep, 0) - moved(-kStep, 0)) / (2 * kStep), 1e-7) << row.name;
      EXPECT_NEAR(v.rejected_slope, (moved(0, kStep) - moved(0, -kStep)) / (2 * kStep), 1e-7) << row.name;
      EXPECT_LT(v.chosen_slope, 0) << row.name;  // a likelier chosen answer is better
    }
  }
  const PreferenceSettings kto = with_loss("kto");
  for (const bool desirable : {true, false}) {
    const AnswerScore answer{-9, -10, 4};
    const auto moved = [&](double by) { return labelled_loss(kto, {answer.logprob + by, answer.reference, answer.weight}, desirable, 0.3).loss; };
    EXPECT_NEAR(labelled_loss(kto, answer, desirable, 0.3).chosen_slope, (moved(kStep) - moved(-kStep)) / (2 * kStep), 1e-8);
  }
}

TEST(PreferenceLosses, EqualSidesFarSidesAndOneToken) {
  const AnswerScore one{-0.25, -0.25, 1};
  EXPECT_DOUBLE_EQ(preference_loss(with_loss("dpo"), one, one).loss, std::log(2.0));
  EXPECT_DOUBLE_EQ(preference_loss(with_loss("dpo"), one, one).chosen_slope, -0.05);
  for (const PreferenceRow& row : preference_rows())
    for (const double far : {1e5, -1e5, 0.0}) {
      if (!row.pairs) continue;
      const PreferenceValue v = preference_loss(with_loss(std::string(row.name)), {-1e-9 + std::min(far, 0.0), 0, 1}, {std::min(-far, 0.0), 0, 1});
      for (const double number : {v.loss, v.chosen_slope, v.rejected_slope, v.chosen_reward}) EXPECT_TRUE(std::isfinite(number)) << row.name << " " << far;
    }
  // Far on the right side: the loss is e^-x, which 1 + e^-x alone would lose.
  EXPECT_NEAR(preference_loss(with_loss("dpo"), {0, -400, 1}, {-400, 0, 1}).loss / std::exp(-80.0), 1, 1e-12);
  EXPECT_EQ(kto_shift({}), 0);
  EXPECT_EQ(kto_shift({{-3, -1, 1}}), 0);
  EXPECT_EQ(kto_shift({{-1, -3, 1}, {-1, -1, 1}}), 1);
}

TEST(PreferenceLosses, WhatIsNotALossOrASettingIsNamed) {
  try {
    preference_row("dop");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("dpo"), std::string::npos) << e.what();
  }
  PreferenceSettings settings;
  settings.beta = 0;
  EXPECT_THROW(check(settings), Error);
  settings = {};
  settings.label_smoothing = 0.5;
  EXPECT_THROW(check(settings), Error);
}

// The weights whose cross-entropy is trained have the gradient of the mean loss, whatever weighs the tokens.
TEST(PreferenceStep, WeightsAreTheDerivativesOfTheMeanLoss) {
  const auto answer = [](std::vector<float> weights) {
    TrainSequence s;
    s.tokens.assign(weights.size(), 1);
    s.targets.assign(weights.size(), 2);
    s.weights = std::move(weights);
    return s;
  };
  const std::vector<PreferenceItem> items{{answer({0, 1, 1}), answer({0, 1, 0.5f, 1})}, {answer({1}), answer({0, 0, 1})}};
  std::vector<std::vector<float>> logprobs{{-9, -1, -2}, {-9, -0.5f, -3, -1}, {-2}, {-9, -9, -0.25f}};
  for (const std::string loss : {"dpo", "ipo", "sigmoid_norm", "orpo", "simpo", "cpo", "hinge"}) {
    const PreferenceSettings settings = with_loss(loss);
    const std::vector<ReferenceScores> references =
        preference_row(loss).reference ? std::vector<ReferenceScores>{{-3.5, -2}, {-1, -1}} : std::vector<ReferenceScores>{};
    PreferenceBatch batch = preference_batch(items, {0, 1}, references, true);
    preference_figures(settings, batch, logprobs, {}, true);
    for (std::size_t s = 0; s < logprobs.size(); ++s)
      for (std::size_t i = 0; i < logprobs[s].size(); ++i) {
        constexpr float kStep = 1.0f / 1024;
        const auto at = [&](float by) {
          std::vector<std::vector<float>> moved = logprobs;
          moved[s][i] += by;
          PreferenceBatch again = preference_batch(items, {0, 1}, references, true);
          return preference_figures(settings, again, moved, {}, false).loss;
        };
        EXPECT_NEAR(-static_cast<double>(batch.trained[s].weights[i]), (at(kStep) - at(-kStep)) / (2.0 * kStep), 2e-5) << loss << " " << s << " " << i;
      }
  }
}

}  // namespace
}  // namespace lockstep
