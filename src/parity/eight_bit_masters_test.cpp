// Training in 8 bits (cpu-fp8, cpu-mxfp8, cpu-mxfp8-experts): what a step publishes, whoever samples has the trainer's bits, and adapters over it.
#include <gtest/gtest.h>

#include "engine/engine_test_tools.h"
#include "model/low_bit_weights.h"
#include "parity/engine_ways.h"
#include "parity/low_bit_test_tools.h"
#include "train/adapter_trainer.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

std::vector<const Profile*> eight_bit_profiles(const TrainBench& m) {
  std::vector<const Profile*> found;
  for (const Profile& p : profiles())
    if (p.weight_bits & kLowBitRows && (!(p.weight_bits & kLowBitExperts) || m.model->facts().experts_a_token > 0)) found.push_back(&p);
  return found;
}

TEST(EightBitMasters, LinearLayersAndExpertsAreQuantisedAndNothingElse) {
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench m(config);
    const std::vector<const Profile*> found = eight_bit_profiles(m);
    EXPECT_EQ(found.size(), m.model->facts().experts_a_token > 0 ? 3u : 2u);
    for (const Profile* profile : found) {
      int few = 0;
      for (std::size_t i = 0; i < m.model->manifest().parameters().size(); ++i) {
        const Parameter& p = m.model->manifest().parameters()[i];
        const bool stays = p.layout == ParameterLayout::table || p.exact || static_cast<ParameterId>(i) == m.model->facts().head ||
                           (profile->weight_bits & kLowBitExperts && p.split != ParameterSplit::experts);
        EXPECT_EQ(weight_bits(p, *profile) & kLowBitRows, stays ? 0 : kLowBitRows) << p.name;
        EXPECT_EQ(low_bit_format_of(weight_bits(p, *profile)), stays ? LowBitFormat::none : low_bit_format_of(profile->weight_bits)) << p.name;
        if (stays) {
          EXPECT_EQ(compute_dtype(p, *profile), p.trained ? DType::bf16 : DType::f32) << p.name;
        }
        few += !stays;
      }
      EXPECT_GT(few, 5);
      EXPECT_TRUE(profile->trains_all_weights());
    }
  }
}

TEST(EightBitMasters, EachStepPublishesWhatTheQuantiserMakesOfTheMasters) {
  for (const char* config : {kGlm, kLlama, kQwen})
    for (const BackendOptions& options : {BackendOptions{.threads = 3}, BackendOptions{.kind = BackendKind::deferred, .threads = 2}}) {
      const TrainBench m(config);
      const std::vector<TrainSequence> data = low_bit_data(m);
      for (const Profile* profile : eight_bit_profiles(m)) {
        Runtime runtime(options, m.model, *profile, 256);
        Trainer trainer(runtime, m.masters, {});
        const auto first = copied(runtime.backend, *trainer.weights());
        trainer.forward_backward(data, {});
        trainer.optim_step({.learning_rate = 0.02});
        const auto made = make_weight_set(runtime.backend, m.model->manifest(), trainer.state().masters(), runtime.profile, 1);
        const auto now = copied(runtime.backend, *trainer.weights());
        EXPECT_TRUE(now == copied(runtime.backend, *made)) << profile->name;
        EXPECT_FALSE(now == first) << "the control: the step moved some numbers";
      }
    }
}

TEST(EightBitMasters, EveryWayToScoreHasTheTrainersBitsAfterSteps) {
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench m(config);
    const std::vector<TrainSequence> data = low_bit_data(m);
    for (const Profile* profile : eight_bit_profiles(m)) {
      Runtime runtime({.kind = config == kLlama ? BackendKind::deferred : BackendKind::cpu, .threads = 2}, m.model, *profile, 256);
      Trainer trainer(runtime, m.masters, {});
      RandomSequence draws(9, RandomStream::fuzz);
      const std::vector<std::int32_t> tokens = random_tokens(draws, 45, m.model->facts().vocabulary);
      const std::vector<TrainSequence> scored{TrainSequence::next_token(tokens)};
      const std::vector<float> before = trainer.score(scored)[0];
      double first = 0, last = 0;
      for (int step = 0; step < 4; ++step) {
        last = trainer.forward_backward(data, {}).loss;
        if (step == 0) first = last;
        trainer.optim_step({.learning_rate = 0.01});
      }
      EXPECT_LT(last, first) << profile->name;
      Engine engine(runtime, trainer.weights(), {.page_size = 4});
      const std::vector<float> after = trainer.score(scored)[0];
      EXPECT_GT(different_bits(after, before), 10u) << "the control";
      for (const ScoreKind way : {ScoreKind::prefill, ScoreKind::chunked, ScoreKind::decode, ScoreKind::prefix, ScoreKind::preempted})
        EXPECT_EQ(different_bits(engine_score(engine, tokens, {.kind = way, .neighbours = 2}), after), 0u) << profile->name << " " << score_kind_name(way);
    }
  }
}

// A restored trainer, and micro-batches, change no bit.
TEST(EightBitMasters, ARestoredTrainerGoesOnWithTheSameBits) {
  const TrainBench m(kGlm);
  const std::vector<TrainSequence> data = low_bit_data(m);
  for (const Profile* profile : eight_bit_profiles(m)) {
    Runtime runtime({.threads = 2}, m.model, *profile, 256), other({.isa = InstructionSet::scalar, .threads = 1}, m.model, *profile, 256);
    Trainer trainer(runtime, m.masters, {}), resumed(other, m.masters, {.micro_batch = 1, .checkpoint_activations = true});
    const auto step = [&](Trainer& of) {
      of.forward_backward(data, {});
      of.optim_step({.learning_rate = 0.01});
    };
    step(trainer);
    resumed.restore(trainer.state().all());
    step(trainer);
    step(resumed);
    EXPECT_EQ(resumed.state().master_hash(), trainer.state().master_hash()) << profile->name;
    EXPECT_TRUE(copied(other.backend, *resumed.weights()) == copied(runtime.backend, *trainer.weights()));
  }
}

TEST(EightBitMasters, AdaptersOverThemHaveTheSamplersBits) {
  for (const char* config : {kGlm, kQwen}) {
    const TrainBench m(config);
    const std::vector<TrainSequence> data = low_bit_data(m);
    for (const Profile* profile : eight_bit_profiles(m)) {
      Runtime runtime({.threads = 2}, m.model, *profile, 256);
      const auto weights = make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1);
      const auto base = std::make_shared<FrozenBase>(runtime, weights, TrainerOptions{});
      const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), AdapterSettings{.rank = 5, .alpha = 7, .unembedding = true});
      AdapterTrainer trainer(base, layout, initial_adapter(*layout, 3));
      for (int step = 0; step < 2; ++step) {
        trainer.forward_backward(data, {});
        trainer.optim_step({.learning_rate = 0.02});
      }
      Engine engine(runtime, weights, {.page_size = 4});
      RandomSequence draws(9, RandomStream::fuzz);
      const std::vector<std::int32_t> tokens = random_tokens(draws, 45, m.model->facts().vocabulary);
      const std::vector<TrainSequence> scored{TrainSequence::next_token(tokens)};
      const std::vector<float> adapted = trainer.score(scored)[0], alone = base->score(scored)[0];
      EXPECT_GT(different_bits(adapted, alone), 10u) << "the control";
      for (const ScoreKind way : {ScoreKind::prefill, ScoreKind::decode}) {
        EXPECT_EQ(different_bits(engine_score(engine, tokens, {.kind = way, .neighbours = 2, .adapter = trainer.weights()}), adapted), 0u) << profile->name;
        EXPECT_EQ(different_bits(engine_score(engine, tokens, {.kind = way, .neighbours = 2}), alone), 0u) << profile->name;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
