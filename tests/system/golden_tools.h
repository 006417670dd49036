// Models for the system tests: the goldens with what transformers says of them, and architectures of theirs with random weights.
// Tests only.
#pragma once
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "checkpoint/safetensors.h"
#include "model/runtime.h"

namespace lockstep {

struct Golden {
  std::shared_ptr<const Model> model;
  WeightImages weights;
  std::vector<std::int32_t> tokens;
  std::map<std::string, std::vector<float>> tensors;  // logits, grad.*
};

// Weights by the rules of tools/golden_weights.py.
inline WeightImages golden_weights(const Manifest& manifest, std::uint64_t seed) {
  WeightImages images(manifest.parameters().size());
  for (const FileTensor& file : manifest.files()) {
    NamedUniform uniform(seed, file.name);
    float offset = 0, amplitude;
    if (file.name.ends_with("norm.weight")) offset = 1, amplitude = 0.3f;
    else if (file.shape.size() == 1) amplitude = 0.3f;
    else if (file.name == "model.embed_tokens.weight") amplitude = 1.0f;
    else amplitude = static_cast<float>(2.0 / std::sqrt(static_cast<double>(file.columns())));
    std::vector<float> values(static_cast<std::size_t>(file.size()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = offset + uniform(i) * amplitude;
    manifest.scatter(file, values.data(), images);
  }
  return images;
}

// `name`: "glm_moe_dsa/sharing".
inline std::filesystem::path golden_folder(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / name;
}

inline Json golden_config(const std::string& name) {
  std::ifstream file(golden_folder(name) / "config.json");
  return Json::parse(file);
}

inline Golden load_golden(const std::string& name) {
  Golden golden;
  golden.model = make_model(golden_config(name));
  const SafetensorsFile file = SafetensorsFile::open(golden_folder(name) / "golden.safetensors");
  golden.weights = golden_weights(golden.model->manifest(), std::stoull(file.metadata().at("seed")));
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (tensor.name == "tokens") {
      const std::vector<std::int64_t> ids = file.read_integers(tensor);
      golden.tokens.assign(ids.begin(), ids.end());
    } else {
      golden.tensors[tensor.name] = file.read(tensor);
    }
  }
  return golden;
}

// A model of every mechanism that is small enough for the traced backend: an index-sharing group, dense and sparse layers, a
// selection shorter than the context, sums long enough to have several leaves (K = 128), a context of more than one block of
// gradient chains.
inline Json tiny_config() {
  return Json::parse(R"({
    "model_type": "glm_moe_dsa", "architectures": ["GlmMoeDsaForCausalLM"], "vocab_size": 37, "hidden_size": 128,
    "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 3, "max_position_embeddings": 640,
    "q_lora_rank": 17, "kv_lora_rank": 18, "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 6,
    "intermediate_size": 19, "moe_intermediate_size": 9, "n_routed_experts": 5, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "norm_topk_prob": true, "routed_scaling_factor": 1.5, "rms_norm_eps": 1e-5, "index_n_heads": 3, "index_head_dim": 10,
    "index_topk": 5, "indexer_types": ["full", "shared", "full"], "mlp_layer_types": ["dense", "sparse", "sparse"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "tie_word_embeddings": false, "eos_token_id": 36,
    "n_group": 1, "topk_group": 1, "hidden_act": "silu"})");
}

// The same of a dense family: groups of three heads, positions beyond the original context of the scaling, a sum of several leaves.
inline Json tiny_dense_config(const std::string& family, bool tied) {
  Json config = Json::parse(R"({
    "vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10,
    "intermediate_size": 19, "max_position_embeddings": 640, "rms_norm_eps": 1e-5, "eos_token_id": 36, "hidden_act": "silu",
    "rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 64}})");
  config["model_type"] = family;
  config["architectures"] = {family == "llama" ? "LlamaForCausalLM" : "Qwen3ForCausalLM"};
  config["tie_word_embeddings"] = tied;
  return config;
}

inline std::vector<std::int32_t> random_tokens(RandomSequence& draws, std::int64_t n, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  for (std::int32_t& t : tokens) t = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(vocabulary)));
  return tokens;
}

}  // namespace lockstep
