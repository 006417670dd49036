// What is trained through one interface has the same bits whether a batch comes whole or in pieces, and after a restart, whatever moves.
#include "trained/trained_model.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/give_way.h"
#include "checkpoint/model_folder.h"
#include "train/adapter_trainer.h"

namespace lockstep {
namespace {

struct TrainedModelTest : testing::TestWithParam<TrainedSettings> {
  std::shared_ptr<const Model> model =
      make_model(Json::parse(std::ifstream(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/glm_moe_dsa/sharing/config.json")));
  TrainedBase base = made_base();

  TrainedBase made_base() {
    TrainedBase made;
    made.opened.model = model;
    made.opened.initial = [model = model] { return initial_weights(model->manifest(), 7, 0.25); };
    made.opened.runtime = std::make_shared<Runtime>(BackendOptions{.threads = 1}, model, profile_by_name("cpu-bf16w"), 128);
    made.weights = serving_model(made.opened).weights;
    made.options.accumulate = true;
    return made;
  }
  static std::vector<TrainSequence> data() {
    std::vector<TrainSequence> all;
    for (std::int32_t s = 0; s < 5; ++s) {
      std::vector<std::int32_t> tokens;
      for (std::int32_t i = 0; i < 6 + 3 * s; ++i) tokens.push_back((7 * i + 11 * s) % 40);
      all.push_back(TrainSequence::next_token(tokens));
    }
    return all;
  }
  static LossOptions loss() {
    LossOptions options;
    for (const TrainSequence& d : data()) options.normaliser += static_cast<double>(d.tokens.size());
    return options;
  }
  static std::uint64_t hash(TrainedModel& trained) { return images_hash(trained.manifest(), trained.master_images()); }
  static AdamParameters step() { return {.learning_rate = 1e-2}; }
};

TEST_P(TrainedModelTest, PiecesHaveTheBitsOfTheWhole) {
  const auto whole = make_trained_model(base, GetParam()), pieces = make_trained_model(base, GetParam());
  const std::uint64_t before = hash(*whole);
  for (int round = 0; round < 2; ++round) {
    const auto all = data();
    const ForwardBackwardResult a = whole->forward_backward(all, loss());
    pieces->begin({.sequences = all.size()}, loss());
    for (const std::vector<std::size_t>& places : {std::vector<std::size_t>{3, 0}, {4}, {1, 2}}) {
      std::vector<TrainSequence> piece;
      for (const std::size_t place : places) piece.push_back(all[place]);
      pieces->add(places, piece);
    }
    const ForwardBackwardResult b = pieces->finish();
    EXPECT_EQ(a.logprobs, b.logprobs);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(whole->optim_step(step()).gradient_norm, pieces->optim_step(step()).gradient_norm);
    EXPECT_EQ(hash(*whole), hash(*pieces));
  }
  EXPECT_NE(hash(*whole), before);
}

TEST_P(TrainedModelTest, ARestoredOneGoesOnWithTheSameBits) {
  const auto first = make_trained_model(base, GetParam());
  first->forward_backward(data(), loss());
  first->optim_step(step());
  const auto second = make_trained_model(base, GetParam());
  second->restore(state_of(*first));
  EXPECT_EQ(second->steps(), 1);
  for (TrainedModel* trained : {first.get(), second.get()}) {
    trained->forward_backward(data(), loss());
    trained->optim_step(step());
  }
  EXPECT_EQ(hash(*first), hash(*second));
}

TEST_P(TrainedModelTest, ItsStateHasMomentsOfWhatIsTrained) {
  const auto trained = make_trained_model(base, GetParam());
  trained->forward_backward(data(), loss());
  trained->optim_step(step());
  const TrainerState state = state_of(*trained);
  EXPECT_EQ(state.step, 1);
  EXPECT_TRUE(state.masters == trained->master_images());
  const std::vector<Parameter>& parameters = trained->manifest().parameters();
  const auto expect_images = [&](StatePart part, const WeightImages& images) {
    ASSERT_EQ(images.size(), parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(std::ssize(images[i]), trained->has_state(part, i) ? parameters[i].size() : 0) << parameters[i].name;
      EXPECT_EQ(images[i], trained->state_image(part, i)) << parameters[i].name;
    }
  };
  expect_images(StatePart::master, state.masters);
  expect_images(StatePart::first_moment, state.first_moments);
  expect_images(StatePart::second_moment, state.second_moments);
}

TEST_P(TrainedModelTest, SamplersGetWhatMoves) {
  const auto trained = make_trained_model(base, GetParam());
  const SamplerWeights weights = trained->sampler_weights();
  EXPECT_EQ(weights.adapter != nullptr, GetParam().rank > 0);
  EXPECT_EQ(weights.weights == base.weights, GetParam().rank > 0);
  EXPECT_EQ(trained->adapter() != nullptr, GetParam().rank > 0);
}

TEST_P(TrainedModelTest, AnAdapterHasNoPhasesOfTheIndexer) {
  const auto trained = make_trained_model(base, GetParam());
  if (GetParam().rank > 0) EXPECT_THROW(trained->forward_backward(data(), loss(), {.dense_attention = true}), Error);
  else EXPECT_GT(trained->forward_backward(data(), loss(), {.dense_attention = true}).loss, 0);
}

// Moments to give way while a model of so many tokens is made: of all parameters, and an adapter of rank 64 over it.
struct Moments final : PausePoint {
  std::int64_t count = 0;
  Moments() { thread_pause_point = this; }
  ~Moments() override { thread_pause_point = nullptr; }
  void pause() override { ++count; }
  std::int64_t longest_kernel() const override { return 0; }
};
std::pair<std::int64_t, std::int64_t> moments_of(std::int64_t vocabulary) {
  Json config = Json::parse(R"({
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 128, "intermediate_size": 80, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
    "hidden_act": "silu"})");
  config["vocab_size"] = vocabulary;
  const std::shared_ptr<const Model> model = make_model(config);
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / fmt::format("lockstep-made-{}-{}", getpid(), vocabulary);
  const WeightImages images = initial_weights(model->manifest(), 7, 0.25);
  save_model_folder(folder, *model, images, {.dtype = DType::f32});
  TrainedBase base;
  base.opened = open_model({.model = folder.string(), .profile = "cpu-bf16w", .threads = 1});
  base.weights = base.opened.weight_set();
  base.options.accumulate = true;
  std::pair<std::int64_t, std::int64_t> counts;
  {
    const Moments moments;
    const auto whole = make_trained_model(base, {});
    counts.first = moments.count;
    EXPECT_TRUE(whole->master_images() == images);
  }
  {
    const Moments moments;
    make_trained_model(base, {.rank = 64, .seed = 1});
    counts.second = moments.count;
  }
  std::filesystem::remove_all(folder);
  return counts;
}

// A model that is made gives way (base/give_way.h) about once a block of everything that is written for it, so that a larger one does so as much more often.
TEST(TrainedModelGivesWay, WhileItIsMade) {
  constexpr std::int64_t kVocabulary = 16384, kFew = 64, kHidden = 64;
  constexpr auto kBlocks =
      static_cast<std::int64_t>(kVocabulary * kHidden * sizeof(float) / kBlockToGiveWay);  // of the embeddings, of the head, of its adapter's B
  const auto [whole, adapter] = moments_of(kVocabulary);
  const auto [few_whole, few_adapter] = moments_of(kFew);
  // Of both tables: zeros of an image and the numbers that are read, which small ones have once, too; the master and what is computed with, two moments.
  EXPECT_GE(whole - few_whole, 2 * (2 * (kBlocks - 1) + 4 * kBlocks));
  // Zeros of an image; numbers in parts of 2^16, which a small one has once; weights, two moments.
  EXPECT_GE(adapter - few_adapter, kBlocks - 1 + kVocabulary * kHidden / (1 << 16) - 1 + 3 * kBlocks);
}

INSTANTIATE_TEST_SUITE_P(All, TrainedModelTest,
                         testing::Values(TrainedSettings{}, TrainedSettings{.optimizer = "dimuon"}, TrainedSettings{.rank = 4, .seed = 1},
                                         TrainedSettings{.rank = 4, .seed = 1, .optimizer = "dimuon"}),
                         [](const testing::TestParamInfo<TrainedSettings>& info) {
                           return (info.param.rank > 0 ? std::string("Adapter") : std::string("Whole")) +
                                  (info.param.optimizer == "adamw" ? "Adamw" : "Dimuon");
                         });

}  // namespace
}  // namespace lockstep
