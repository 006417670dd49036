// Models and groups of sequences with common prefixes, for tests of prefix sharing. Tests only.
#pragma once
#include <gtest/gtest.h>

#include <bit>

#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {

// Selections shorter than a prompt, layers that share one, experts, several leaves.
inline constexpr const char* kPrefixGlm = R"({
  "model_type": "glm_moe_dsa", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 4, "max_position_embeddings": 1024, "q_lora_rank": 24, "kv_lora_rank": 24, "qk_nope_head_dim": 16,
  "qk_rope_head_dim": 8, "v_head_dim": 16, "intermediate_size": 96, "moe_intermediate_size": 16, "n_routed_experts": 6,
  "num_experts_per_tok": 2, "n_shared_experts": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.5, "rms_norm_eps": 1e-5,
  "index_n_heads": 4, "index_head_dim": 16, "index_topk": 12, "indexer_types": ["full", "shared", "full"],
  "mlp_layer_types": ["dense", "sparse", "sparse"], "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
  "hidden_act": "silu", "scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1})";
inline constexpr const char* kPrefixLlama = R"({
  "model_type": "llama", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 1024, "intermediate_size": 136, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"})";
inline constexpr const char* kPrefixQwen = R"({
  "model_type": "qwen3", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 1024, "intermediate_size": 136, "rms_norm_eps": 1e-6,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu"})";

struct GroupShape {
  std::int64_t prompt = 0;                // tokens that all have
  std::vector<std::int64_t> completions;  // tokens after it, of each sequence
};
// Rows of a policy loss: the prompt's are not scored. With `declared`, each group's prompt but its last token is a shared prefix.
inline std::vector<TrainSequence> groups_of(const std::vector<GroupShape>& shapes, bool declared = false, std::uint64_t seed = 5) {
  RandomSequence draws(seed, RandomStream::fuzz);
  const auto token = [&] { return static_cast<std::int32_t>(draws.below(96)); };
  std::vector<TrainSequence> data;
  for (std::size_t g = 0; g < shapes.size(); ++g) {
    std::vector<std::int32_t> prompt;
    for (std::int64_t i = 0; i < shapes[g].prompt; ++i) prompt.push_back(token());
    for (const std::int64_t completion : shapes[g].completions) {
      TrainSequence& d = data.emplace_back();
      d.tokens = prompt;
      for (std::int64_t i = 0; i < completion; ++i) d.tokens.push_back(token());
      for (std::size_t i = 0; i < d.tokens.size(); ++i) {
        const bool scored = static_cast<std::int64_t>(i) + 1 >= shapes[g].prompt;
        d.targets.push_back(scored ? token() : -1);
        d.weights.push_back(scored ? 1.0f : 0.0f);
        d.advantages.push_back(scored ? static_cast<float>(draws.uniform() - 0.5) : 0.0f);
        d.old_logprobs.push_back(scored ? -4.5f : 0.0f);
      }
      if (declared && shapes[g].prompt > 1) d.prefix_group = static_cast<std::int64_t>(g), d.shared_prefix = shapes[g].prompt - 1;
    }
  }
  return data;
}

struct PrefixCase {
  bool share = false;
  int threads = 1;
  std::string profile = "cpu-bf16w";
  BackendKind backend = BackendKind::cpu;
  std::int64_t micro_batch = 0;
  bool checkpoint = false, index_loss = false, declared = true;
  RankLayout ranks;
  InstructionSet isa = widest_instruction_set();
};

// What a step makes, over two of them.
struct PrefixOutcome {
  std::vector<ForwardBackwardResult> results;
  std::vector<std::vector<std::vector<float>>> scores;
  std::vector<WeightImages> gradients;
  std::vector<std::uint64_t> hashes;  // of gradients and masters
};

inline PrefixOutcome run_prefixes(const TrainBench& m, const PrefixCase& c, const std::vector<TrainSequence>& data, OperationObserver* observer = nullptr) {
  Runtime runtime({.kind = c.backend, .isa = c.isa, .threads = c.threads}, m.model, profile_by_name(c.profile), 700);
  runtime.observer = observer;
  Trainer trainer(runtime, m.masters,
                  {.micro_batch = c.micro_batch,
                   .checkpoint_activations = c.checkpoint,
                   .share_prefixes = c.share,
                   .declared_prefixes = c.declared,
                   .train_indexer = c.index_loss,
                   .ranks = c.ranks});
  LossOptions loss;
  loss.kind = LossKind::policy;
  PrefixOutcome outcome;
  for (int step = 0; step < 2; ++step) {
    outcome.scores.push_back(trainer.score(data));
    outcome.results.push_back(trainer.forward_backward(data, loss, {.dense_attention = c.index_loss && step == 0, .index_loss = c.index_loss}));
    outcome.gradients.push_back(trainer.gradient_images());
    outcome.hashes.push_back(images_hash(m.model->manifest(), outcome.gradients.back()));
    trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3});
    outcome.hashes.push_back(trainer.state().master_hash());
  }
  return outcome;
}

// Zeros of either sign are told apart too.
inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float v : values) bits.push_back(std::bit_cast<std::uint32_t>(v));
  return bits;
}

inline void expect_same_bits(const TrainBench& m, const PrefixOutcome& got, const PrefixOutcome& want, const std::string& what) {
  SCOPED_TRACE(what);
  for (std::size_t step = 0; step < want.results.size(); ++step) {
    for (std::size_t s = 0; s < want.scores[step].size(); ++s) {
      EXPECT_EQ(bits_of(got.scores[step][s]), bits_of(want.scores[step][s])) << "scores of sequence " << s;
      EXPECT_EQ(bits_of(got.results[step].logprobs[s]), bits_of(want.results[step].logprobs[s])) << "log-probabilities of sequence " << s;
      EXPECT_EQ(bits_of(got.results[step].entropies[s]), bits_of(want.results[step].entropies[s])) << "entropies of sequence " << s;
    }
    EXPECT_EQ(got.results[step].loss, want.results[step].loss);
    EXPECT_EQ(got.results[step].index_loss, want.results[step].index_loss);
    EXPECT_EQ(got.results[step].rows, want.results[step].rows);
    EXPECT_EQ(got.results[step].scored, want.results[step].scored);
    for (std::size_t i = 0; i < want.gradients[step].size(); ++i)
      EXPECT_EQ(bits_of(got.gradients[step][i]), bits_of(want.gradients[step][i])) << "gradient of " << m.model->manifest().parameters()[i].name;
  }
  EXPECT_EQ(got.hashes, want.hashes);
}

}  // namespace lockstep
