// A run laid out over ranks has the bits of one rank: log-probabilities, losses, gradients, masters, moments, over several steps.
#include <gtest/gtest.h>

#include <bit>
#include <stdexcept>

#include "base/error.h"
#include "base/philox.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

// Sums of several leaves, heads that some layouts divide and some do not, odd widths, 5 sequences of several lengths.
constexpr const char* kGlm = R"({
  "model_type": "glm_moe_dsa", "vocab_size": 96, "hidden_size": 288, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 4, "max_position_embeddings": 1024, "q_lora_rank": 24, "kv_lora_rank": 24, "qk_nope_head_dim": 16,
  "qk_rope_head_dim": 8, "v_head_dim": 32, "intermediate_size": 256, "moe_intermediate_size": 16, "n_routed_experts": 6,
  "num_experts_per_tok": 2, "n_shared_experts": 4, "norm_topk_prob": true, "routed_scaling_factor": 1.5, "rms_norm_eps": 1e-5,
  "index_n_heads": 4, "index_head_dim": 16, "index_topk": 8, "indexer_types": ["full", "shared", "full"],
  "mlp_layer_types": ["dense", "sparse", "sparse"], "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
  "hidden_act": "silu", "scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1})";
constexpr const char* kLlama = R"({
  "model_type": "llama", "vocab_size": 128, "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8,
  "num_key_value_heads": 4, "head_dim": 16, "max_position_embeddings": 1024, "intermediate_size": 264, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"})";
// Three key heads: what tensor-parallel ranks share of the heads is not what they share of the sums.
constexpr const char* kQwen = R"({
  "model_type": "qwen3", "vocab_size": 150, "hidden_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6,
  "num_key_value_heads": 3, "head_dim": 32, "max_position_embeddings": 1024, "intermediate_size": 320, "rms_norm_eps": 1e-6,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu"})";

struct Outcome {
  std::vector<ForwardBackwardResult> results;
  std::vector<WeightImages> gradients;
  std::vector<double> norms;
  TrainerState state;
};

struct Bench {
  std::shared_ptr<const Model> model;
  WeightImages masters;
  explicit Bench(const std::string& config) : model(make_model(Json::parse(config))), masters(initial_weights(model->manifest(), 1, 0.08)) {}
};

std::vector<TrainSequence> sequences(std::int64_t vocabulary, int count = 5) {
  RandomSequence draws(3, RandomStream::fuzz);
  std::vector<TrainSequence> data;
  for (int s = 0; s < count; ++s) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(s == 1 ? 540 : 3 + 9 * s));
    for (auto& token : tokens) token = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(vocabulary)));
    data.push_back(TrainSequence::next_token(tokens));
    for (float& w : data.back().weights) w = static_cast<float>(draws.uniform());
  }
  return data;
}

struct Case {
  RankLayout ranks;
  std::string profile = "cpu-f32";
  BackendKind backend = BackendKind::cpu;
  bool indexer = false, checkpoint = false;
  std::int64_t micro_batch = 0;
};

Outcome run(const Bench& bench, const Case& c, const std::vector<TrainSequence>& data, int steps = 2) {
  Runtime runtime({.kind = c.backend, .threads = 1}, bench.model, profile_by_name(c.profile), 600);
  Trainer trainer(runtime, bench.masters,
                  {.micro_batch = c.micro_batch, .checkpoint_activations = c.checkpoint, .train_indexer = c.indexer, .ranks = c.ranks});
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    outcome.results.push_back(trainer.forward_backward(data, {}, {.dense_attention = c.indexer && step == 0, .index_loss = c.indexer}));
    outcome.gradients.push_back(trainer.gradient_images());
    outcome.norms.push_back(trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3}).gradient_norm);
  }
  outcome.state = trainer.state();
  return outcome;
}

std::string difference(const Manifest& manifest, const WeightImages& got, const WeightImages& want) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i].size() != want[i].size()) return fmt::format("{}: {} values, not {}", manifest.parameters()[i].name, got[i].size(), want[i].size());
    for (std::size_t at = 0; at < want[i].size(); ++at)
      if (std::bit_cast<std::uint32_t>(got[i][at]) != std::bit_cast<std::uint32_t>(want[i][at]))
        return fmt::format("{} [{}]: {} is not {}", manifest.parameters()[i].name, at, got[i][at], want[i][at]);
  }
  return "";
}

void expect_same(const Manifest& manifest, const Outcome& got, const Outcome& want, const std::string& what) {
  SCOPED_TRACE(what);
  for (std::size_t step = 0; step < want.results.size(); ++step) {
    EXPECT_EQ(got.results[step].logprobs, want.results[step].logprobs);
    EXPECT_EQ(got.results[step].entropies, want.results[step].entropies);
    EXPECT_EQ(got.results[step].loss, want.results[step].loss);
    EXPECT_EQ(got.results[step].index_loss, want.results[step].index_loss);
    EXPECT_EQ(got.results[step].rows, want.results[step].rows);
    EXPECT_EQ(got.results[step].scored, want.results[step].scored);
    EXPECT_EQ(got.norms[step], want.norms[step]);
    EXPECT_EQ(difference(manifest, got.gradients[step], want.gradients[step]), "") << "gradients of step " << step;
  }
  EXPECT_EQ(difference(manifest, got.state.masters, want.state.masters), "") << "masters";
  EXPECT_EQ(difference(manifest, got.state.first_moments, want.state.first_moments), "") << "first moments";
  EXPECT_EQ(difference(manifest, got.state.second_moments, want.state.second_moments), "") << "second moments";
  EXPECT_EQ(got.state.step, want.state.step);
}

class Ranks : public ::testing::TestWithParam<const char*> {};

TEST_P(Ranks, DataParallelStepsHaveTheBitsOfOneRank) {
  const Bench bench(GetParam());
  const std::vector<TrainSequence> data = sequences(bench.model->vocabulary);
  for (const char* profile : {"cpu-f32", "cpu-bf16w"}) {
    const Outcome want = run(bench, {.profile = profile}, data);
    for (const int dp : {2, 3, 7})  // more ranks than sequences too
      expect_same(bench.model->manifest(), run(bench, {.ranks = {1, dp, 1}, .profile = profile}, data), want, fmt::format("{}, dp={}", profile, dp));
    expect_same(bench.model->manifest(), run(bench, {.ranks = {1, 2, 1}, .profile = profile, .backend = BackendKind::deferred, .checkpoint = true, .micro_batch = 1}, data),
                want, "deferred, checkpointed, micro-batches of one");
  }
  if (!bench.model->has_indexer()) return;
  const Outcome want = run(bench, {.indexer = true}, data);
  expect_same(bench.model->manifest(), run(bench, {.ranks = {1, 3, 1}, .indexer = true}, data), want, "indexer");
}

TEST_P(Ranks, TensorAndExpertParallelStepsHaveTheBitsOfOneRank) {
  const Bench bench(GetParam());
  const std::vector<TrainSequence> data = sequences(bench.model->vocabulary, 4);
  for (const char* profile : {"cpu-f32", "cpu-bf16w"}) {
    const Outcome want = run(bench, {.profile = profile}, data);
    for (const RankLayout& ranks : {RankLayout{2, 1, 1}, {3, 1, 1}, {4, 1, 1}, {8, 1, 1}, {1, 1, 2}, {1, 1, 3}, {2, 1, 2}, {2, 2, 1}, {2, 2, 2}, {3, 2, 1}, {11, 1, 1}})
      expect_same(bench.model->manifest(), run(bench, {.ranks = ranks, .profile = profile}, data), want, fmt::format("{}, {}", profile, ranks.text()));
    expect_same(bench.model->manifest(),
                run(bench, {.ranks = {2, 2, 1}, .profile = profile, .backend = BackendKind::deferred, .checkpoint = true, .micro_batch = 1}, data), want,
                "deferred, checkpointed, micro-batches of one");
  }
  if (!bench.model->has_indexer()) return;
  const Outcome want = run(bench, {.indexer = true}, data);
  expect_same(bench.model->manifest(), run(bench, {.ranks = {2, 2, 2}, .indexer = true}, data), want, "indexer");
}

INSTANTIATE_TEST_SUITE_P(Families, Ranks, ::testing::Values(kGlm, kLlama, kQwen));

// The control: another summation (another leaf count) is another outcome, in data-parallel ranks too.
TEST(RanksControl, AnotherLeafCountIsSeen) {
  const Bench bench(kLlama);
  const std::vector<TrainSequence> data = sequences(bench.model->vocabulary);
  const Outcome want = run(bench, {}, data, 1), got = run(bench, {.ranks = {1, 2, 1}, .profile = "study-leaves-f32"}, data, 1);
  EXPECT_NE(difference(bench.model->manifest(), got.state.masters, want.state.masters), "");
}

TEST(RanksState, SavedInOneLayoutResumesInAnother) {
  const Bench bench(kLlama);
  const std::vector<TrainSequence> data = sequences(bench.model->vocabulary, 3);
  const TrainerState whole = run(bench, {.profile = "cpu-bf16w"}, data, 3).state;
  TrainerState state = run(bench, {.ranks = {1, 2, 1}, .profile = "cpu-bf16w"}, data, 1).state;
  for (const RankLayout& ranks : {RankLayout{1, 3, 1}, RankLayout{1, 1, 1}}) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
    Trainer trainer(runtime, bench.masters, {.ranks = ranks});
    trainer.restore(state);
    trainer.forward_backward(data, {});
    trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3});
    state = trainer.state();
  }
  EXPECT_EQ(difference(bench.model->manifest(), state.masters, whole.masters), "");
  EXPECT_EQ(difference(bench.model->manifest(), state.second_moments, whole.second_moments), "");
}

TEST(RanksMemory, OptimizerStateIsSharedOut) {
  const Bench bench(kGlm);
  const auto optimizer_bytes = [&](int dp) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
    Trainer trainer(runtime, bench.masters, {.ranks = {1, dp, 1}});
    std::int64_t sum = 0, most = 0;
    for (int rank = 0; rank < dp; ++rank) {
      const std::int64_t bytes = trainer.memory(rank).current(MemoryCategory::optimizer);
      sum += bytes;
      most = std::max(most, bytes);
    }
    return std::pair(sum, most);
  };
  const auto one = optimizer_bytes(1), four = optimizer_bytes(4);
  EXPECT_EQ(four.first, one.first);          // every row has one owner
  EXPECT_LT(four.second, one.first * 3 / 10);  // and no rank much more than a quarter
}

TEST(RanksMemory, ARankHoldsItsShareOfTheModel) {
  for (const auto& [config, layout] : {std::pair{kLlama, RankLayout{4, 1, 1}}, {kQwen, {2, 1, 1}}, {kGlm, {2, 1, 2}}}) {
    const Bench bench(config);
    const std::vector<TrainSequence> data = sequences(bench.model->vocabulary, 3);
    const auto held = [&](const RankLayout& ranks, MemoryCategory category) {
      Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
      const std::int64_t table = runtime.backend.device().memory().current(MemoryCategory::weights);  // of rope
      Trainer trainer(runtime, bench.masters, {.ranks = ranks});
      trainer.forward_backward(data, {});
      trainer.optim_step({});
      std::int64_t most = 0;
      for (int rank = 0; rank < ranks.size(); ++rank) most = std::max(most, trainer.memory(rank).current(category));
      return category == MemoryCategory::weights ? most - table : most;
    };
    for (const MemoryCategory category : {MemoryCategory::weights, MemoryCategory::optimizer, MemoryCategory::cache}) {
      if (category == MemoryCategory::cache && config == kGlm) continue;  // one entry serves all heads
      const std::int64_t one = held({}, category), most = held(layout, category);
      EXPECT_LT(most, one * 7 / 10) << bench.model->family() << ", " << kMemoryCategoryNames[static_cast<int>(category)];
      EXPECT_GT(most, one / layout.model() - 1);
    }
  }
}

TEST(RanksFailure, ABadSequenceIsAnErrorAndTheTrainerGoesOn) {
  const Bench bench(kLlama);
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
  Trainer trainer(runtime, bench.masters, {.ranks = {1, 3, 1}});
  std::vector<TrainSequence> data = sequences(bench.model->vocabulary, 3);
  data[2].tokens[0] = 100000;
  EXPECT_THROW(trainer.forward_backward(data, {}), Error);
  EXPECT_THROW(trainer.optim_step({}), Error);
  data[2].tokens[0] = 1;
  trainer.forward_backward(data, {});
  trainer.optim_step({});
  EXPECT_EQ(trainer.step(), 1);
}

// A weight that is no number is met by one rank alone: the other does not wait for ever.
TEST(RanksFailure, ANumberThatFailsOnOneRankReleasesTheOthers) {
  Bench bench(kLlama);
  const ParameterId head = bench.model->head;
  std::fill_n(bench.masters[static_cast<std::size_t>(head)].begin(), 16, std::numeric_limits<float>::infinity());
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
  Trainer trainer(runtime, bench.masters, {.ranks = {1, 2, 1}});
  try {
    trainer.forward_backward(sequences(bench.model->vocabulary, 2), {});
    FAIL() << "an infinite weight was not seen";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::numeric) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
