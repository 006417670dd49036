// Training under a profile whose weights are quantised after each step: the compute copy is the quantiser's of the newest masters, gradients pass
// straight through it to them, and whoever samples has the trainer's bits.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/engine_test_tools.h"
#include "model/low_bit_weights.h"
#include "parity/engine_ways.h"
#include "parity/low_bit_test_tools.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

constexpr const char* kQat = "cpu-int4-qat";

TEST(QuantisedMasters, LinearLayersAndExpertsAreQuantisedAndNothingElse) {
  const Profile& profile = profile_by_name(kQat);
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench m(config);
    const Manifest& manifest = m.model->manifest();
    int few = 0;
    for (std::size_t i = 0; i < manifest.parameters().size(); ++i) {
      const Parameter& p = manifest.parameters()[i];
      const bool stays = p.layout == ParameterLayout::table || p.exact || static_cast<ParameterId>(i) == m.model->facts().head;
      EXPECT_EQ(weight_bits(p, profile), stays ? 0 : static_cast<int>(LowBitFormat::int4)) << p.name;
      if (stays) {
        EXPECT_EQ(compute_dtype(p, profile), p.trained ? DType::bf16 : DType::f32) << p.name;
      }
      few += !stays;
    }
    EXPECT_GT(few, 10);
  }
  EXPECT_TRUE(profile.trains_all_weights());
  EXPECT_FALSE(profile_by_name("cpu-int4-base").trains_all_weights());
  EXPECT_NE(profile.digest(), profile_by_name("cpu-int4-base").digest());
}

TEST(QuantisedMasters, EachStepPublishesWhatTheQuantiserMakesOfTheMasters) {
  for (const char* config : {kGlm, kLlama})
    for (const char* optimizer : {"adamw", "dimuon"})
      for (const BackendOptions& options :
           {BackendOptions{.threads = 1}, BackendOptions{.threads = 3}, BackendOptions{.kind = BackendKind::deferred, .threads = 2}}) {
        const TrainBench m(config);
        const std::vector<TrainSequence> data = low_bit_data(m);
        Runtime runtime(options, m.model, profile_by_name(kQat), 256);
        Trainer trainer(runtime, m.masters, {.optimizer = *optimizer_named(optimizer)});
        CopiedWeights last = copied(runtime.backend, *trainer.weights());
        for (int step = 0; step < 2; ++step) {
          trainer.forward_backward(data, {});
          trainer.optim_step({.learning_rate = 0.02});
          const CopiedWeights now = copied(runtime.backend, *trainer.weights());
          const auto made = make_weight_set(runtime.backend, m.model->manifest(), trainer.state().masters(), runtime.profile, 1);
          EXPECT_TRUE(now == copied(runtime.backend, *made)) << optimizer;
          EXPECT_FALSE(now == last) << "the control: the step moved some integers";
          last = now;
        }
      }
}

// The decoded numbers as weights of fp32: their gradients are those that the masters get.
TEST(QuantisedMasters, GradientsPassStraightThrough) {
  const Profile decoded{"decoded numbers", "", false, true, false, 8, true};
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench m(config);
    const std::vector<TrainSequence> data = low_bit_data(m);
    Runtime runtime({.threads = 2}, m.model, profile_by_name(kQat), 256), twin_runtime({.threads = 2}, m.model, decoded, 256),
        plain_runtime({.threads = 2}, m.model, profile_by_name("cpu-bf16w"), 256);
    Trainer trainer(runtime, m.masters, {}), plain(plain_runtime, m.masters, {});
    Trainer twin(twin_runtime, weight_images(runtime.backend, m.model->manifest(), *trainer.weights(), runtime.profile), {});
    const double loss = trainer.forward_backward(data, {}).loss;
    EXPECT_EQ(loss, twin.forward_backward(data, {}).loss);
    EXPECT_NE(loss, plain.forward_backward(data, {}).loss) << "the control: weights that are not quantised";
    EXPECT_EQ(difference(m.model->manifest(), trainer.gradient_images(), twin.gradient_images()), "");
    EXPECT_EQ(trainer.score(data), twin.score(data));
  }
}

// Steps too small to move an integer add up in the masters.
TEST(QuantisedMasters, MastersKeepWhatTheirIntegersCannotShow) {
  const TrainBench m(kLlama);
  Runtime runtime({.threads = 2}, m.model, profile_by_name(kQat), 256);
  Trainer trainer(runtime, m.masters, {});
  const auto integers = [&] {
    std::vector<std::vector<std::uint8_t>> without_scales;
    const CopiedWeights now = copied(runtime.backend, *trainer.weights());
    for (std::size_t i = 0; i < now.bytes.size(); ++i) {
      if (now.bytes[i].empty()) continue;
      const LowBitShape shape = low_bit_shape(m.model->manifest().parameters()[i], runtime.profile);
      std::vector<std::uint8_t>& all = without_scales.emplace_back();
      for (std::size_t at = 0; at < now.bytes[i].size(); ++at)
        if (static_cast<std::int64_t>(at) % shape.panel_bytes() >= shape.scale_bytes()) all.push_back(now.bytes[i][at]);
    }
    return without_scales;
  };
  const auto begin = integers();
  const auto differing = [&](const std::vector<std::vector<std::uint8_t>>& now) {
    std::size_t count = 0, all = 0;
    for (std::size_t i = 0; i < begin.size(); ++i)
      for (std::size_t at = 0; at < begin[i].size(); ++at) count += begin[i][at] != now[i][at], ++all;
    return static_cast<double>(count) / static_cast<double>(all);
  };
  const std::vector<TrainSequence> data = low_bit_data(m);
  const auto step = [&] {
    trainer.forward_backward(data, {});
    trainer.optim_step({.learning_rate = 2e-4});
  };
  step();
  const double after_one = differing(integers());
  EXPECT_LT(after_one, 0.05) << "masters move by a hundredth of an integer's step";
  EXPECT_NE(difference(m.model->manifest(), trainer.state().masters(), m.masters), "");
  for (int i = 0; i < 40; ++i) step();
  EXPECT_GT(differing(integers()), 4 * after_one + 0.05);
}

TEST(QuantisedMasters, EveryWayToScoreHasTheTrainersBitsAfterSteps) {
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench m(config);
    const BackendKind kind = config == kLlama ? BackendKind::deferred : BackendKind::cpu;
    Runtime runtime({.kind = kind, .threads = 2}, m.model, profile_by_name(kQat), 256);
    Trainer trainer(runtime, m.masters, {});
    Engine engine(runtime, trainer.weights(), {.page_size = 4});
    RandomSequence draws(9, RandomStream::fuzz);
    const std::vector<std::int32_t> tokens = random_tokens(draws, 45, m.model->facts().vocabulary);
    const std::vector<TrainSequence> scored{TrainSequence::next_token(tokens)};
    const std::vector<float> before = trainer.score(scored)[0];
    const std::vector<TrainSequence> data = low_bit_data(m);
    double first = 0, last = 0;
    for (int step = 0; step < 6; ++step) {
      last = trainer.forward_backward(data, {}).loss;
      if (step == 0) first = last;
      trainer.optim_step({.learning_rate = 0.01});
    }
    EXPECT_LT(last, first);
    engine.set_weights(trainer.weights());
    const std::vector<float> after = trainer.score(scored)[0];
    EXPECT_GT(different_bits(after, before), 10u) << "the control";
    for (const ScoreKind way : {ScoreKind::prefill, ScoreKind::chunked, ScoreKind::decode, ScoreKind::prefix, ScoreKind::preempted})
      EXPECT_EQ(different_bits(engine_score(engine, tokens, {.kind = way, .neighbours = 2}), after), 0u) << score_kind_name(way);
  }
}

TEST(QuantisedMasters, ARestoredTrainerGoesOnWithTheSameBits) {
  const TrainBench m(kGlm);
  const std::vector<TrainSequence> data = low_bit_data(m);
  Runtime runtime({.threads = 2}, m.model, profile_by_name(kQat), 256), other({.threads = 1}, m.model, profile_by_name(kQat), 256);
  Trainer trainer(runtime, m.masters, {});
  const auto step = [&](Trainer& of) {
    of.forward_backward(data, {});
    of.optim_step({.learning_rate = 0.01});
  };
  step(trainer);
  Trainer resumed(other, m.masters, {});
  resumed.restore(trainer.state().all());
  EXPECT_TRUE(copied(other.backend, *resumed.weights()) == copied(runtime.backend, *trainer.weights()));
  step(trainer);
  step(resumed);
  EXPECT_EQ(resumed.state().master_hash(), trainer.state().master_hash());
  EXPECT_TRUE(copied(other.backend, *resumed.weights()) == copied(runtime.backend, *trainer.weights()));
}

TEST(QuantisedMasters, MemoryIsThatOfMastersMomentsAndPackedCopies) {
  const TrainBench m(kLlama);
  const auto accounts = [&](const char* profile) {
    Runtime runtime({.threads = 1}, m.model, profile_by_name(profile), 256);
    Trainer trainer(runtime, m.masters, {});
    return std::pair(runtime.backend.device().memory().current(MemoryCategory::weights), runtime.backend.device().memory().current(MemoryCategory::optimizer));
  };
  const auto [weights, moments] = accounts(kQat);
  const auto [plain_weights, plain_moments] = accounts("cpu-bf16w");
  EXPECT_EQ(moments, plain_moments);
  const std::int64_t copies = weight_bytes(m.model->manifest(), profile_by_name(kQat)).all,
                     plain_copies = weight_bytes(m.model->manifest(), profile_by_name("cpu-bf16w")).all;
  EXPECT_EQ(plain_weights - weights, plain_copies - copies) << "masters are the same";
  EXPECT_LT(copies, 0.5 * static_cast<double>(plain_copies));
}

}  // namespace
}  // namespace lockstep
