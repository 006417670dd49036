// The scale of gradients, what is counted for it, and norms by group.
#include <gtest/gtest.h>

#include <cmath>

#include "base/comparison_test_tools.h"
#include "base/error.h"
#include "train/adapter_trainer.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

const LossOptions kSum{.normaliser = 1, .averaging = LossAveraging::sum};

struct Stepped {
  OptimResult result;
  WeightImages masters;
};

// eps is large, so that the size of a gradient shows in the update.
AdamParameters adam_with(double scale, double max_norm) {
  return {.learning_rate = 1e-2, .eps = 0.05, .max_norm = max_norm, .gradient_scale = scale, .group_norms = true};
}

std::vector<TrainSequence> weighed(std::vector<TrainSequence> data, float factor) {
  for (TrainSequence& d : data)
    for (float& w : d.weights) w *= factor;
  return data;
}

Stepped full_step(const TrainBench& m, const std::vector<TrainSequence>& data, const AdamParameters& adam, const RankLayout& ranks = {}) {
  Runtime runtime({.threads = 1}, m.model, profile_by_name("cpu-f32"), 600);
  Trainer trainer(runtime, m.masters, {.accumulate = true, .ranks = ranks});
  trainer.forward_backward(data, kSum);
  Stepped out;
  out.result = trainer.optim_step(adam);
  out.masters = trainer.state().masters();
  return out;
}

Stepped adapter_step(const TrainBench& m, const std::vector<TrainSequence>& data, const AdamParameters& adam, int steps = 1) {
  Runtime runtime({.threads = 1}, m.model, profile_by_name("cpu-f32"), 600);
  const auto base = std::make_shared<FrozenBase>(runtime, make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1),
                                                 TrainerOptions{.accumulate = true});
  const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), AdapterSettings{.rank = 4});
  AdapterTrainer trainer(base, layout, initial_adapter(*layout, 1));
  Stepped out;
  for (int step = 0; step < steps; ++step) {
    trainer.forward_backward(data, kSum);
    out.result = trainer.optim_step(adam);
  }
  out.masters = trainer.state().masters();
  return out;
}

TEST(GradientScale, APowerOfTwoHasTheBitsOfScaledWeights) {
  const TrainBench m(kLlama);
  const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), AdapterSettings{.rank = 4});
  const std::vector<TrainSequence> data = {sequences(m.model->facts().vocabulary)[0], sequences(m.model->facts().vocabulary)[2]};
  for (const double max_norm : {0.0, 0.25, 1e9}) {
    const Stepped want = full_step(m, weighed(data, 0.125f), adam_with(1, max_norm)), plain = full_step(m, data, adam_with(1, max_norm));
    for (const RankLayout& ranks : {RankLayout{1, 1, 1}, {2, 1, 1}, {1, 2, 1}}) {
      const Stepped got = full_step(m, data, adam_with(0.125, max_norm), ranks);
      EXPECT_EQ(difference(m.model->manifest(), got.masters, want.masters), "") << max_norm << " " << ranks.text();
      EXPECT_EQ(got.result.gradient_norm, want.result.gradient_norm);
    }
    EXPECT_EQ(full_step(m, data, adam_with(0.125, max_norm)).result.group_norms, want.result.group_norms);
    const bool clipped = max_norm == 0.25;                                                               // to one length, whatever the scale was
    EXPECT_EQ(difference(m.model->manifest(), plain.masters, want.masters) == "", clipped) << max_norm;  // the control
    const Stepped adapter = adapter_step(m, data, adam_with(0.125, max_norm)), adapter_want = adapter_step(m, weighed(data, 0.125f), adam_with(1, max_norm));
    EXPECT_EQ(difference(layout->manifest(), adapter.masters, adapter_want.masters), "") << max_norm;
    EXPECT_EQ(adapter.result.group_norms, adapter_want.result.group_norms);
    EXPECT_EQ(difference(layout->manifest(), adapter_step(m, data, adam_with(1, max_norm)).masters, adapter_want.masters) == "", clipped);
  }
}

TEST(GradientScale, AnyOtherIsThatOfScaledWeightsButForRounding) {
  const TrainBench m(kLlama);
  const std::vector<TrainSequence> data = {sequences(m.model->facts().vocabulary)[0], sequences(m.model->facts().vocabulary)[2]};
  for (const double max_norm : {0.0, 0.25}) {
    const Stepped got = full_step(m, data, adam_with(1.0 / 3, max_norm)), want = full_step(m, weighed(data, 1.0f / 3), adam_with(1, max_norm));
    EXPECT_NEAR(got.result.gradient_norm, want.result.gradient_norm, 1e-5 * want.result.gradient_norm);
    ASSERT_EQ(got.masters.size(), want.masters.size());
    for (std::size_t i = 0; i < want.masters.size(); ++i) EXPECT_LT(absolute_error(got.masters[i], want.masters[i]), 1e-6) << max_norm;
  }
}

TEST(GradientScale, GroupsMakeUpTheNorm) {
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench m(config);
    const std::vector<TrainSequence> data = {sequences(m.model->facts().vocabulary)[0]};
    // The second step of an adapter: in the first one B is 0, and A has no gradient.
    for (const Stepped& s : {full_step(m, data, adam_with(0.5, 0)), adapter_step(m, data, adam_with(0.5, 0)), adapter_step(m, data, adam_with(0.5, 0), 2)}) {
      double squares = 0;
      for (const auto& [name, norm] : s.result.group_norms) squares += norm * norm;
      EXPECT_NEAR(std::sqrt(squares), s.result.gradient_norm, 1e-5 * s.result.gradient_norm);
      EXPECT_GE(s.result.group_norms.size(), 2u);
      EXPECT_GT(s.result.elements, 0);
    }
  }
}

TEST(GradientScale, TokensAndSequencesWithAGradientAreCounted) {
  const TrainBench m(kLlama);
  std::vector<TrainSequence> data = sequences(m.model->facts().vocabulary);
  data.erase(data.begin() + 1);
  for (TrainSequence& d : data) d.weights.assign(d.targets.size(), 1.0f);
  data[0].weights.assign(data[0].targets.size(), 0.0f);  // masked whole
  data[1].weights[3] = 0;
  data[2].targets[0] = -1;
  std::int64_t tokens = -2;
  for (std::size_t s = 1; s < data.size(); ++s) tokens += static_cast<std::int64_t>(data[s].targets.size());
  for (const RankLayout& ranks : {RankLayout{1, 1, 1}, {2, 1, 1}, {1, 2, 1}}) {
    Runtime runtime({.threads = 1}, m.model, profile_by_name("cpu-f32"), 600);
    Trainer trainer(runtime, m.masters, {.micro_batch = 2, .accumulate = true, .share_prefixes = true, .ranks = ranks});
    const ForwardBackwardResult whole = trainer.forward_backward(data, kSum);
    EXPECT_EQ(whole.gradient_tokens, tokens) << ranks.text();
    EXPECT_EQ(whole.gradient_sequences, static_cast<std::int64_t>(data.size()) - 1);
    trainer.begin_batch({.sequences = data.size()}, kSum);
    for (std::size_t s = data.size(); s-- > 0;) trainer.add({s}, {data[s]});
    const ForwardBackwardResult pieces = trainer.finish_batch();
    EXPECT_EQ(pieces.gradient_tokens, tokens);
    EXPECT_EQ(pieces.gradient_sequences, whole.gradient_sequences);
    // A policy loss: no gradient where the advantage is 0.
    for (TrainSequence& d : data) {
      d.advantages.assign(d.targets.size(), 0.0f);
      d.old_logprobs.assign(d.targets.size(), -1.0f);
    }
    data[1].advantages[1] = data[1].advantages[2] = data[2].advantages[0] = data[2].advantages[1] = 1;
    LossOptions policy = kSum;
    policy.kind = LossKind::importance_sampling;
    const ForwardBackwardResult result = trainer.forward_backward(data, policy);
    EXPECT_EQ(result.gradient_tokens, 3);  // one of the four has no target
    EXPECT_EQ(result.gradient_sequences, 2);
  }
}

}  // namespace
}  // namespace lockstep
