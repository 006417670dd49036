// Small configs that tests of families change, and what is said of one that is refused.
//   EXPECT_EQ(refusal(with(small_config(), "head_dim", 15)), "...");
#pragma once
#include <string>
#include <utility>

#include "base/error.h"
#include "model/model.h"

namespace lockstep {

inline Json small_config() {
  return Json::parse(R"({
    "model_type": "llama", "vocab_size": 31, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
    "head_dim": 16, "intermediate_size": 20, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})");
}

inline Json with(Json config, const std::string& key, Json value) {
  config[key] = std::move(value);
  return config;
}

inline Json without(Json config, const std::string& key) {
  config.erase(key);
  return config;
}

inline std::string refusal(const Json& config) {
  try {
    make_model(config);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

inline Json small_gpt_oss() {
  Json config = with(small_config(), "model_type", "gpt_oss");
  config["num_local_experts"] = 4, config["num_experts_per_tok"] = 2, config["attention_bias"] = true;
  config["sliding_window"] = 7;
  return config;
}

inline Json small_experts(const std::string& type) {
  Json config = with(small_config(), "model_type", type);
  config["num_experts"] = 6;
  config["num_experts_per_tok"] = 2;
  if (type == "qwen3_moe") config["moe_intermediate_size"] = 5;
  return config;
}

inline Json small_deepseek() {
  return Json::parse(R"({
    "model_type": "deepseek_v3", "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "max_position_embeddings": 256, "q_lora_rank": 24, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 32,
    "intermediate_size": 64, "moe_intermediate_size": 16, "n_routed_experts": 12, "num_experts_per_tok": 4, "first_k_dense_replace": 1,
    "n_group": 4, "topk_group": 2, "rope_theta": 10000.0,
    "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 64}})");
}

}  // namespace lockstep
