// Shared by training tests: small models of three families, data, and bitwise comparison of images. Tests only.
//   const TrainBench bench(kLlama); const auto data = sequences(bench.model->facts().vocabulary);
#pragma once
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/philox.h"
#include "model/model.h"
#include "train/data.h"

namespace lockstep {

// Sums of several leaves, heads that some layouts divide and some do not, odd widths, 5 sequences of several lengths.
inline constexpr const char* kGlm = R"({
  "model_type": "glm_moe_dsa", "vocab_size": 96, "hidden_size": 288, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 4, "max_position_embeddings": 1024, "q_lora_rank": 24, "kv_lora_rank": 24, "qk_nope_head_dim": 16,
  "qk_rope_head_dim": 8, "v_head_dim": 32, "intermediate_size": 256, "moe_intermediate_size": 16, "n_routed_experts": 6,
  "num_experts_per_tok": 2, "n_shared_experts": 4, "norm_topk_prob": true, "routed_scaling_factor": 1.5, "rms_norm_eps": 1e-5,
  "index_n_heads": 4, "index_head_dim": 16, "index_topk": 8, "indexer_types": ["full", "shared", "full"],
  "mlp_layer_types": ["dense", "sparse", "sparse"], "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
  "hidden_act": "silu", "scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1})";
inline constexpr const char* kLlama = R"({
  "model_type": "llama", "vocab_size": 128, "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8,
  "num_key_value_heads": 4, "head_dim": 16, "max_position_embeddings": 1024, "intermediate_size": 264, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"})";
// Three key heads: tensor-parallel ranks split heads at other columns than sums.
inline constexpr const char* kQwen = R"({
  "model_type": "qwen3", "vocab_size": 150, "hidden_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6,
  "num_key_value_heads": 3, "head_dim": 32, "max_position_embeddings": 1024, "intermediate_size": 320, "rms_norm_eps": 1e-6,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu"})";

// Latent attention over all keys, for the profiles that expand it.
inline constexpr const char* kOverAllKeys = R"({
  "model_type": "deepseek_v3", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 3,
  "num_key_value_heads": 3, "max_position_embeddings": 1024, "q_lora_rank": 24, "kv_lora_rank": 64, "qk_nope_head_dim": 16,
  "qk_rope_head_dim": 8, "v_head_dim": 12, "intermediate_size": 96, "moe_intermediate_size": 16, "n_routed_experts": 8,
  "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "rope_theta": 10000.0})";

struct TrainBench {
  std::shared_ptr<const Model> model;
  WeightImages masters;
  explicit TrainBench(const std::string& config) : model(make_model(Json::parse(config))), masters(initial_weights(model->manifest(), 1, 0.08)) {}
};

// `longest`: tokens of the second one, which of 540 has two blocks of positions for sums over them, of fewer one.
inline std::vector<TrainSequence> sequences(std::int64_t vocabulary, int count = 5, int longest = 540) {
  RandomSequence draws(3, RandomStream::fuzz);
  std::vector<TrainSequence> data;
  for (int s = 0; s < count; ++s) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(s == 1 ? longest : 3 + 9 * s));
    for (auto& token : tokens) token = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(vocabulary)));
    data.push_back(TrainSequence::next_token(tokens));
    for (float& w : data.back().weights) w = static_cast<float>(draws.uniform());
  }
  return data;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}
inline bool same_bits(const WeightImages& a, const WeightImages& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& one, const auto& other) { return same_bits(one, other); });
}

// Describes the first value whose bits differ; empty: none. Images are compared whole, and value by value only where they differ: a test over ranks compares
// a hundred million values, in code that is compiled without optimisation.
inline std::string difference(const Manifest& manifest, const WeightImages& got, const WeightImages& want) {
  if (got.size() != want.size()) return fmt::format("{} parameters, not {}", got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i].size() != want[i].size()) return fmt::format("{}: {} values, not {}", manifest.parameters()[i].name, got[i].size(), want[i].size());
    if (same_bits(got[i], want[i])) continue;
    for (std::size_t at = 0; at < want[i].size(); ++at)
      if (std::bit_cast<std::uint32_t>(got[i][at]) != std::bit_cast<std::uint32_t>(want[i][at]))
        return fmt::format("{} [{}]: {} is not {}", manifest.parameters()[i].name, at, got[i][at], want[i][at]);
  }
  return "";
}

}  // namespace lockstep
