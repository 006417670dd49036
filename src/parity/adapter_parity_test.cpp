// Trainer and sampler give bitwise equal log-probabilities under adapters: every way of scoring, mixed adapters in one batch.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/engine_test_tools.h"
#include "parity/engine_ways.h"
#include "train/adapter_trainer.h"
#include "train/train_test_tools.h"

namespace lockstep {
namespace {

constexpr const char* kDeepSeek = R"({
  "model_type": "deepseek_v3", "vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 3,
  "max_position_embeddings": 256, "q_lora_rank": 12, "kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5,
  "intermediate_size": 32, "moe_intermediate_size": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
  "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "rope_theta": 10000.0})";

struct AdapterPlant {
  Runtime runtime;
  std::shared_ptr<const WeightSet> weights;
  std::shared_ptr<FrozenBase> base;
  std::vector<std::unique_ptr<AdapterTrainer>> trainers;

  AdapterPlant(const TrainBench& m, const std::string& profile, const BackendOptions& backend)
      : runtime(backend, m.model, profile_by_name(profile), 256),
        weights(make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1)),
        base(std::make_shared<FrozenBase>(runtime, weights, TrainerOptions{})) {
    // Trained for two steps, so that no B is zero.
    const std::vector<AdapterSettings> kinds{{.rank = 3, .unembedding = true}, {.rank = 16, .mlp = false}, {.rank = 40, .attention = false}};
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), kinds[i]);
      trainers.push_back(std::make_unique<AdapterTrainer>(base, layout, initial_adapter(*layout, i)));
      RandomSequence draws(i, RandomStream::fuzz);
      const std::vector<TrainSequence> data{TrainSequence::next_token(random_tokens(draws, 30, m.model->facts().vocabulary))};
      for (int step = 0; step < 2; ++step) {
        trainers.back()->forward_backward(data, {});
        trainers.back()->optim_step({.learning_rate = 0.02});
      }
    }
  }
  std::shared_ptr<const AdapterWeights> adapter(std::size_t i) const { return i < trainers.size() ? trainers[i]->weights() : nullptr; }
  std::vector<float> trained_score(std::size_t i, const std::vector<std::int32_t>& tokens) {
    const std::vector<TrainSequence> data{TrainSequence::next_token(tokens)};
    return (i < trainers.size() ? trainers[i]->score(data) : base->score(data))[0];
  }
};

TEST(AdapterParity, EveryWayToScoreHasTheTrainersBits) {
  for (const char* config : {kGlm, kLlama, kQwen, kDeepSeek})
    for (const auto& [profile, kind] : {std::pair("cpu-f32", BackendKind::cpu), std::pair("cpu-bf16w", BackendKind::deferred),
                                        std::pair("cpu-bf16w-expanded", BackendKind::deferred), std::pair("cpu-f32-expanded", BackendKind::cpu)}) {
      const TrainBench m(config);
      if (!m.model->profile_refusal(profile_by_name(profile)).empty()) continue;
      AdapterPlant plant(m, profile, {.kind = kind, .threads = 2});
      Engine engine(plant.runtime, plant.weights, {.page_size = 4});
      RandomSequence draws(9, RandomStream::fuzz);
      const std::vector<std::int32_t> tokens = random_tokens(draws, 45, m.model->facts().vocabulary);
      std::vector<std::vector<float>> scores;
      for (std::size_t i = 0; i <= plant.trainers.size(); ++i) {
        scores.push_back(plant.trained_score(i, tokens));
        for (const ScoreKind way : {ScoreKind::prefill, ScoreKind::chunked, ScoreKind::decode, ScoreKind::prefix, ScoreKind::preempted})
          EXPECT_EQ(different_bits(engine_score(engine, tokens, {.kind = way, .seed = i, .neighbours = 2, .adapter = plant.adapter(i)}), scores[i]), 0u)
              << m.model->family() << " " << profile << ", adapter " << i << ", " << score_kind_name(way);
        for (std::size_t other = 0; other < i; ++other) EXPECT_GT(different_bits(scores[other], scores[i]), 10u);  // the control
      }
    }
}

TEST(AdapterParity, MixedAdaptersInOneBatchSampleWhatTheTrainerScores) {
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench m(config);
    AdapterPlant plant(m, "cpu-bf16w", {.threads = 2});
    const std::size_t adapters = plant.trainers.size() + 1;
    std::vector<Request> requests = random_requests(24, 3, m.model->facts().vocabulary);
    std::vector<std::vector<std::uint32_t>> alone;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].adapter = plant.adapter(i % adapters);
      requests[i].experts = requests[i].experts && m.model->facts().expert_shape().row() > 0;
      alone.push_back(bits_of(Engine(plant.runtime, plant.weights, {.prefix_cache = false}).generate({requests[i]})[0]));
    }
    for (const std::int64_t pages : {0, 40}) {
      Engine engine(plant.runtime, plant.weights, {.page_size = 4, .cache_pages = pages, .prefill_chunk = 7});
      const std::vector<Generation> got = engine.generate(requests);
      EXPECT_EQ(bits_of(got), alone) << m.model->family();
      EXPECT_GE(engine.counters().most_adapters, 2);
      for (std::size_t i = 0; i < got.size(); ++i) {
        std::vector<std::int32_t> text = requests[i].prompt;
        for (const GeneratedToken& t : got[i].tokens) text.push_back(t.id);
        if (text.size() < 2) continue;
        const std::vector<float> want = plant.trained_score(i % adapters, text);
        for (std::size_t t = 0; t < got[i].tokens.size(); ++t)
          EXPECT_EQ(std::bit_cast<std::uint32_t>(got[i].tokens[t].raw_logprob), std::bit_cast<std::uint32_t>(want[requests[i].prompt.size() - 1 + t]));
      }
    }
  }
}

// A new version of an adapter is another model: no page of the old one is used.
TEST(AdapterParity, ANewVersionUsesNoOldPage) {
  const TrainBench m(kLlama);
  AdapterPlant plant(m, "cpu-f32", {.threads = 1});
  Engine engine(plant.runtime, plant.weights, {.page_size = 4});
  const std::vector<std::int32_t> tokens(20, 7);
  const auto generate = [&] { return engine.generate({{.prompt = tokens, .sampling = {.max_tokens = 4}, .adapter = plant.adapter(1)}})[0]; };
  const Generation before = generate();
  EXPECT_EQ(before.tokens[0].weights_version, 2u);
  EXPECT_EQ(bits_of(generate()), bits_of(before));
  const std::int64_t hits = engine.counters().cache_hit_tokens;
  EXPECT_GT(hits, 0);
  const std::vector<TrainSequence> data{TrainSequence::next_token(tokens)};
  plant.trainers[1]->forward_backward(data, {});
  plant.trainers[1]->optim_step({.learning_rate = 0.02});
  const Generation after = generate();
  EXPECT_EQ(engine.counters().cache_hit_tokens, hits);
  EXPECT_NE(bits_of(after), bits_of(before));
  Engine ranks(plant.runtime, plant.weights, {.page_size = 4, .ranks = {2, 1, 1}});
  EXPECT_EQ(bits_of(ranks.generate({{.prompt = tokens, .sampling = {.max_tokens = 4}, .adapter = plant.adapter(1)}})[0]), bits_of(after));
}

}  // namespace
}  // namespace lockstep
