// Adapters over a frozen low-bit base: the trainer's log-probabilities are the sampler's, and everything has the bits of a base that holds the
// decoded numbers. What cannot be done is refused.
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "engine/engine_test_tools.h"
#include "model/low_bit_weights.h"
#include "parity/engine_ways.h"
#include "parity/low_bit_test_tools.h"
#include "train/adapter_trainer.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

// Matrices wide enough to be cut between blocks of 128 numbers, and a tied table of two blocks.
constexpr const char* kWide = R"({
  "model_type": "llama", "vocab_size": 256, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
  "num_key_value_heads": 8, "head_dim": 32, "max_position_embeddings": 1024, "intermediate_size": 512, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"})";

struct LowBitPlant {
  Runtime runtime;
  std::shared_ptr<const WeightSet> weights;
  std::shared_ptr<FrozenBase> base;
  std::unique_ptr<AdapterTrainer> trainer;

  LowBitPlant(const TrainBench& m, const Profile& profile, const WeightImages& images, const BackendOptions& backend = {.threads = 2})
      : runtime(backend, m.model, profile, 256),
        weights(make_weight_set(runtime.backend, m.model->manifest(), images, runtime.profile, 1)),
        base(std::make_shared<FrozenBase>(runtime, weights, TrainerOptions{})) {
    const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), AdapterSettings{.rank = 5, .alpha = 7, .unembedding = true});
    trainer = std::make_unique<AdapterTrainer>(base, layout, initial_adapter(*layout, 3));
  }
  WeightImages images() { return weight_images(runtime.backend, runtime.model->manifest(), *weights, runtime.profile); }
};

// cpu-bf16w with weights that keep every bit: what a low-bit base decodes to needs more than bf16 (int4).
const Profile& decoded_profile() {
  static const Profile profile{"decoded", "", false, true, false, 8, true};
  return profile;
}

struct LowBitOutcome {
  std::vector<double> losses;
  std::vector<std::uint64_t> hashes;  // of gradients and of the adapter after each step
  std::vector<std::vector<float>> scores;
  bool operator==(const LowBitOutcome&) const = default;
};

LowBitOutcome train_low_bit(AdapterTrainer& trainer, const std::vector<TrainSequence>& data, int steps) {
  LowBitOutcome out;
  for (int step = 0; step < steps; ++step) {
    out.losses.push_back(trainer.forward_backward(data, {}).loss);
    out.hashes.push_back(images_hash(trainer.layout().manifest(), trainer.gradient_images()));
    trainer.optim_step({.learning_rate = 0.02});
    out.hashes.push_back(trainer.state().master_hash());
  }
  out.scores = trainer.score(data);
  return out;
}
LowBitOutcome train_low_bit(LowBitPlant& plant, const std::vector<TrainSequence>& data, int steps) { return train_low_bit(*plant.trainer, data, steps); }

std::vector<std::string> low_bit_profiles(const TrainBench& m) {
  std::vector<std::string> names;
  for (const Profile& p : profiles())
    if (is_low_bit_format(p.weight_bits) && !(p.weight_bits & kLowBitRows) && (!(p.weight_bits & kLowBitExperts) || m.model->facts().experts_a_token > 0))
      names.push_back(p.name);
  return names;
}

TEST(LowBitBase, TrainingHasTheBitsOfTheDecodedBaseAndTheLossFalls) {
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench m(config);
    const std::vector<TrainSequence> data = low_bit_data(m);
    LowBitPlant plain(m, profile_by_name("cpu-bf16w"), m.masters);
    const LowBitOutcome before = train_low_bit(plain, data, 1);
    const std::vector<std::string> names = low_bit_profiles(m);
    EXPECT_EQ(names.size(), m.model->facts().experts_a_token > 0 ? 9u : 5u);
    for (const std::string& name : names) {
      SCOPED_TRACE(std::string(m.model->family()) + " " + name);
      LowBitPlant encoded(m, profile_by_name(name), m.masters);
      const WeightImages decoded = encoded.images();
      const LowBitOutcome got = train_low_bit(encoded, data, 3);
      LowBitPlant twin(m, decoded_profile(), decoded);
      EXPECT_TRUE(train_low_bit(twin, data, 3) == got);
      EXPECT_LT(got.losses.back(), got.losses.front());
      EXPECT_NE(got.hashes[0], before.hashes[0]) << "the control: the weights before they were encoded have other bits";
      // The base is what it was, and encoding what was decoded gives the same base.
      EXPECT_EQ(encoded.images(), decoded);
      LowBitPlant again(m, profile_by_name(name), decoded);
      EXPECT_EQ(again.images(), decoded);
      if (m.model->facts().experts_a_token == 0) {
        LowBitPlant narrow(m, profile_by_name(name), m.masters, {.isa = InstructionSet::scalar, .threads = 1});
        EXPECT_TRUE(train_low_bit(narrow, data, 3) == got);
      }
    }
  }
}

TEST(LowBitBase, EveryWayToScoreHasTheTrainersBits) {
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench m(config);
    for (const std::string& name : low_bit_profiles(m)) {
      LowBitPlant plant(m, profile_by_name(name), m.masters, {.kind = name == "cpu-fp8-base" ? BackendKind::deferred : BackendKind::cpu, .threads = 2});
      train_low_bit(plant, low_bit_data(m), 2);
      Engine engine(plant.runtime, plant.weights, {.page_size = 4});
      RandomSequence draws(9, RandomStream::fuzz);
      const std::vector<std::int32_t> tokens = random_tokens(draws, 45, m.model->facts().vocabulary);
      const std::vector<TrainSequence> data{TrainSequence::next_token(tokens)};
      const std::vector<float> adapted = plant.trainer->score(data)[0], alone = plant.base->score(data)[0];
      EXPECT_GT(different_bits(adapted, alone), 10u) << "the control";
      for (const ScoreKind way : {ScoreKind::prefill, ScoreKind::chunked, ScoreKind::decode, ScoreKind::prefix, ScoreKind::preempted}) {
        EXPECT_EQ(different_bits(engine_score(engine, tokens, {.kind = way, .neighbours = 2, .adapter = plant.trainer->weights()}), adapted), 0u)
            << name << ", " << score_kind_name(way);
        EXPECT_EQ(different_bits(engine_score(engine, tokens, {.kind = way, .neighbours = 2}), alone), 0u) << name << ", " << score_kind_name(way);
      }
    }
  }
}

TEST(LowBitBase, MemoryAccountsSayTheLowBitBytes) {
  const TrainBench m(kLlama);
  const auto bytes_of = [&](const char* name) {
    Backend backend({.threads = 1});
    const Profile& profile = profile_by_name(name);
    const auto set = make_weight_set(backend, m.model->manifest(), m.masters, profile, 1);
    const std::int64_t bytes = backend.device().memory().current(MemoryCategory::weights);
    EXPECT_EQ(bytes, weight_bytes(m.model->manifest(), profile).all) << name;
    return static_cast<double>(bytes);
  };
  const double bf16 = bytes_of("cpu-bf16w");
  EXPECT_LT(bytes_of("cpu-int4-base"), 0.31 * bf16);  // 264 inputs are 8.25 groups, and there are norms
  EXPECT_LT(bytes_of("cpu-fp8-base"), 0.53 * bf16);
  EXPECT_LT(bytes_of("cpu-mxfp8-base"), 0.53 * bf16);
  EXPECT_LT(bytes_of("cpu-mxfp4-base"), 0.30 * bf16);
}

// What a file may have and no quantiser makes: integers of -8 in every group of int4, scales of fp8 that are no power of two.
void write_own_numbers(Backend& backend, const Manifest& manifest, const Profile& profile, const WeightSet& weights) {
  std::size_t written = 0;
  for (std::size_t i = 0; i < weights.parameters.size(); ++i) {
    const View& copy = weights.parameters[i].view();
    if (copy.dtype != DType::u8) continue;
    const LowBitShape shape = low_bit_shape(manifest.parameters()[i], profile);
    std::vector<std::uint8_t> bytes = backend.stream().read_bytes(copy).get();
    for (std::size_t panel = 0; panel < bytes.size(); panel += static_cast<std::size_t>(shape.panel_bytes())) {
      if (shape.format == LowBitFormat::fp8) {
        for (std::int64_t block = 0; block * kFp8Block < shape.inputs; ++block, ++written) {
          float scale;
          std::memcpy(&scale, &bytes[panel + static_cast<std::size_t>(block) * 4], 4);
          scale *= 1.1f + 0.01f * static_cast<float>(block);
          std::memcpy(&bytes[panel + static_cast<std::size_t>(block) * 4], &scale, 4);
        }
        continue;
      }
      for (std::size_t at = static_cast<std::size_t>(shape.scale_bytes()); at < static_cast<std::size_t>(shape.panel_bytes()); at += 5)
        bytes[panel + at] = 0, ++written;
    }
    backend.stream().write(copy, bytes);
  }
  EXPECT_GT(written, 50u);
}

// Every rank computes with a file's own numbers and scales, wherever it cuts a matrix, and not with what a quantiser makes of them.
TEST(LowBitBase, RanksHaveAFilesOwnNumbers) {
  for (const auto& [config, profile] : {std::pair(kGlm, "cpu-int4-experts"), std::pair(kGlm, "cpu-fp8-base"), std::pair(kLlama, "cpu-int4-base"),
                                        std::pair(kWide, "cpu-fp8-base"), std::pair(kWide, "cpu-int4-base")}) {
    const TrainBench m(config);
    const std::vector<TrainSequence> data = low_bit_data(m);
    enum class Numbers { quantised, own, own_quantised };
    const auto trained = [&, name = std::string(profile)](const RankLayout& ranks, Numbers numbers, BackendKind kind = BackendKind::cpu) {
      Runtime runtime({.kind = kind, .threads = 1}, m.model, profile_by_name(name), 256);
      const Manifest& manifest = m.model->manifest();
      auto weights = make_weight_set(runtime.backend, manifest, m.masters, runtime.profile, 1);
      if (numbers != Numbers::quantised) write_own_numbers(runtime.backend, manifest, runtime.profile, *weights);
      if (numbers == Numbers::own_quantised)
        weights = make_weight_set(runtime.backend, manifest, weight_images(runtime.backend, manifest, *weights, runtime.profile), runtime.profile, 1);
      const auto base = std::make_shared<FrozenBase>(runtime, weights, TrainerOptions{.ranks = ranks});
      const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), AdapterSettings{.rank = 5, .alpha = 7, .unembedding = true});
      AdapterTrainer trainer(base, layout, initial_adapter(*layout, 3));
      return train_low_bit(trainer, data, 2);
    };
    const LowBitOutcome want = trained({}, Numbers::own);
    EXPECT_NE(trained({}, Numbers::quantised).hashes, want.hashes) << "the control: the numbers are others";
    EXPECT_NE(trained({}, Numbers::own_quantised).hashes, want.hashes) << "the control: scales that are computed anew are seen";
    for (const RankLayout& ranks : {RankLayout{1, 2, 1}, {1, 3, 1}, {2, 1, 1}, {3, 1, 1}, {1, 1, 2}, {2, 1, 2}, {1, 1, 1, 2}, {2, 2, 2, 2}})
      EXPECT_TRUE(trained(ranks, Numbers::own) == want) << profile << ", " << ranks.text();
    for (const RankLayout& ranks : {RankLayout{1, 2, 1}, {2, 1, 1}})
      EXPECT_TRUE(trained(ranks, Numbers::own, BackendKind::deferred) == want) << profile << ", deferred, " << ranks.text();
  }
}

// The trainer over one layout of ranks, the engine over another.
TEST(LowBitBase, ServingOverRanksHasTheTrainersBits) {
  for (const char* config : {kGlm, kLlama, kQwen, kWide}) {
    const TrainBench m(config);
    for (const std::string& name : low_bit_profiles(m)) {
      LowBitPlant plant(m, profile_by_name(name), m.masters);
      if (name == "cpu-int4-base" || name == "cpu-fp8-base")
        write_own_numbers(plant.runtime.backend, m.model->manifest(), plant.runtime.profile, *plant.weights);
      train_low_bit(plant, low_bit_data(m), 1);
      RandomSequence draws(9, RandomStream::fuzz);
      const std::vector<std::int32_t> tokens = random_tokens(draws, 45, m.model->facts().vocabulary);
      const std::vector<TrainSequence> data{TrainSequence::next_token(tokens)};
      const std::vector<float> adapted = plant.trainer->score(data)[0], alone = plant.base->score(data)[0];
      EXPECT_GT(different_bits(adapted, alone), 10u) << "the control";
      std::vector<RankLayout> layouts = {{2, 1, 1}, {2, 1, 2, 2}};
      if (name == "cpu-int4-base" || name == "cpu-fp8-base") layouts.insert(layouts.end(), {{3, 1, 1}, {1, 1, 2}, {1, 1, 1, 2}});
      for (const RankLayout& ranks : layouts) {
        Engine engine(plant.runtime, plant.weights, {.page_size = 4, .ranks = ranks});
        for (const ScoreKind way : {ScoreKind::prefill, ScoreKind::decode}) {
          EXPECT_EQ(different_bits(engine_score(engine, tokens, {.kind = way, .neighbours = 2, .adapter = plant.trainer->weights()}), adapted), 0u)
              << name << ", " << score_kind_name(way) << ", " << ranks.text();
          EXPECT_EQ(different_bits(engine_score(engine, tokens, {.kind = way, .neighbours = 2}), alone), 0u)
              << name << ", " << score_kind_name(way) << ", " << ranks.text();
        }
      }
    }
  }
}

TEST(LowBitBase, OnlyAdaptersTrain) {
  const TrainBench m(kLlama);
  const std::vector<TrainSequence> data = low_bit_data(m);
  LowBitPlant plant(m, profile_by_name("cpu-mxfp8-base"), m.masters);
  Trainer whole(plant.runtime, m.masters, {});
  EXPECT_EQ(whole.score(data), plant.base->score(data));
  try {
    whole.forward_backward(data, {});
    FAIL() << "all parameters of a low-bit base trained";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("adapters"), std::string::npos) << e.what();
  }
  EXPECT_THROW(Runtime({.threads = 1}, m.model, profile_by_name("cpu-fp8-experts"), 64), Error) << "it has no experts";
  LowBitPlant other(m, profile_by_name("cpu-fp8-base"), m.masters);
  EXPECT_THROW(Engine(plant.runtime, other.weights, {}), Error) << "weights of another format";
}

}  // namespace
}  // namespace lockstep
