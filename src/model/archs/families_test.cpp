// Configs of families: what is read, what is refused, and that no config at all crashes.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/philox.h"
#include "model/model.h"

namespace lockstep {
namespace {

Json small_config() {
  return Json::parse(R"({
    "model_type": "llama", "vocab_size": 31, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
    "head_dim": 16, "intermediate_size": 20, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})");
}
Json with(Json config, const std::string& key, Json value) {
  config[key] = std::move(value);
  return config;
}
Json without(Json config, const std::string& key) {
  config.erase(key);
  return config;
}

std::string refusal(const Json& config) {
  try {
    make_model(config);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(DenseConfig, SaysWhatIsWrong) {
  const Json base = small_config();
  const auto expect = [](const Json& config, const std::string& part) {
    EXPECT_NE(refusal(config).find(part), std::string::npos) << refusal(config) << " lacks " << part;
  };
  EXPECT_EQ(refusal(base), "accepted");
  expect(without(base, "hidden_size"), "'hidden_size' is missing");
  expect(with(base, "num_key_value_heads", 4), "'num_key_value_heads' is 4, allowed are divisors of 'num_attention_heads', 6");
  expect(with(base, "head_dim", 15), "'head_dim' is 15, allowed are even numbers");
  expect(with(without(base, "head_dim"), "hidden_size", 50), "'head_dim' is missing");
  expect(with(base, "head_dim", 65536 * 2), "'head_dim' is 131072");
  expect(with(with(base, "num_attention_heads", 1024), "head_dim", 65536), "'num_attention_heads' x 'head_dim'");
  expect(with(base, "attention_bias", true), "'attention_bias' is true");
  expect(with(base, "mlp_bias", true), "'mlp_bias' is true");
  expect(with(base, "hidden_act", "gelu"), "'hidden_act' is \"gelu\"");
  expect(with(base, "use_sliding_window", true), "'use_sliding_window' is true");
  expect(with(base, "layer_types", {"full_attention", "sliding_attention"}), "'layer_types' contains 'sliding_attention'");
  expect(with(base, "tie_word_embeddings", "yes"), "'tie_word_embeddings' is \"yes\"");
  expect(with(base, "model_type", "lama"), "did you mean 'llama'");
  const auto rope = [&](const Json& parameters) { return with(base, "rope_parameters", parameters); };
  expect(rope({{"rope_type", "dynamic"}, {"factor", 2.0}}), "'rope_type' is 'dynamic', allowed are default, linear, llama3, yarn");
  expect(rope({{"rope_type", "lama3"}}), "did you mean 'llama3'");
  expect(rope({{"rope_type", "llama3"}, {"factor", 8.0}}), "'low_freq_factor' is missing");
  expect(rope({{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 4.0}, {"high_freq_factor", 4.0}}), "'high_freq_factor' is 4");
  expect(rope({{"rope_type", "linear"}}), "'factor' is missing");
  expect(rope({{"rope_type", "linear"}, {"factor", 0}}), "'factor' is 0");
  expect(rope({{"rope_type", "yarn"}, {"factor", 2.0}, {"rope_theta", 1.0}}), "'rope_theta' is 1");
  expect(rope({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}), "'partial_rotary_factor' is 0.5");
  expect(with(base, "partial_rotary_factor", 0.5), "'partial_rotary_factor' is 0.5");
  expect(rope({{"rope_theta", "big"}}), "'rope_theta' is \"big\"");
  expect(rope(Json::array({1})), "not a JSON object");
  expect(rope({{"rope_type", "default"}, {"ropetheta", 5e5}}), "'ropetheta' is not known here");
  expect(rope({{"full_attention", {{"rope_type", "default"}}}}), "'full_attention' is not known here");
  expect(rope({{"mrope_section", {11, 11, 10}}}), "'mrope_section' is not known here");
  expect(with(base, "rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}), "'rope_scaling' and 'rope_parameters' are both there and differ");
}

TEST(DenseConfig, WhatIsLeftOutIsWhatTransformersTakes) {
  Json config = without(without(small_config(), "head_dim"), "num_key_value_heads");
  EXPECT_EQ(make_model(config)->cache_shapes()[0].entry, 2 * 6 * 8);  // llama: hidden / heads, as many as heads
  config["model_type"] = "qwen3";
  EXPECT_EQ(make_model(config)->cache_shapes()[0].entry, 2 * 6 * 128);
  // Qwen3 of more than 32 heads: 32 key heads where nothing is said, as many as heads where null is.
  EXPECT_EQ(make_model(with(config, "num_attention_heads", 64))->cache_shapes()[0].entry, 2 * 32 * 128);
  EXPECT_EQ(make_model(with(with(config, "num_attention_heads", 64), "num_key_value_heads", nullptr))->cache_shapes()[0].entry, 2 * 64 * 128);
  EXPECT_FALSE(make_model(config)->has_indexer());
  EXPECT_EQ(make_model(without(config, "max_position_embeddings"))->facts().max_positions, 32768);
}

TEST(DenseConfig, CountsATiedTableOnce) {
  const std::int64_t table = 31 * 48;
  const auto tied = make_model(with(small_config(), "tie_word_embeddings", true)), untied = make_model(small_config());
  EXPECT_EQ(untied->manifest().trained_size(), tied->manifest().trained_size() + table);
  EXPECT_EQ(untied->facts().active_size, tied->facts().active_size);  // the head is used, the input embedding not counted
  EXPECT_EQ(tied->manifest().parameter(tied->facts().head).name, "model.embed_tokens.weight");
  EXPECT_EQ(untied->manifest().parameter(untied->facts().head).name, "lm_head.weight");
}

TEST(DenseConfig, OlderKeysMeanTheSame) {
  const Json scaled = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 64}};
  Json now = small_config(), before = without(small_config(), "rope_parameters");
  now["rope_parameters"] = scaled;
  now["rope_parameters"]["rope_theta"] = 500000.0;
  before["rope_scaling"] = scaled;
  before["rope_theta"] = 500000.0;
  const std::vector<float> table = rope_table(200, make_model(now)->facts().rope);
  EXPECT_EQ(rope_table(200, make_model(before)->facts().rope), table);
  before["rope_scaling"]["type"] = before["rope_scaling"]["rope_type"];
  before["rope_scaling"].erase("rope_type");
  EXPECT_EQ(rope_table(200, make_model(before)->facts().rope), table);
  before["rope_scaling"] = nullptr;
  EXPECT_NE(rope_table(200, make_model(before)->facts().rope), table);
}

TEST(RopeTable, HalfHoldsTheSameNumbersAsPairs) {
  RopeSpec pairs{.rotary = 10, .theta = 1e4};
  RopeSpec half = pairs;
  half.half = true;
  const std::vector<float> p = rope_table(70, pairs), h = rope_table(70, half);
  for (std::size_t row = 0; row < 70; ++row)
    for (std::size_t j = 0; j < 5; ++j) {
      EXPECT_EQ(h[row * 10 + j], p[row * 10 + 2 * j]);
      EXPECT_EQ(h[row * 10 + 5 + j], p[row * 10 + 2 * j + 1]);
    }
}

// A theta inside the older `rope_scaling` comes before the one outside, as in transformers.
TEST(DenseConfig, TheInnerThetaRules) {
  const Json config = with(with(without(small_config(), "rope_parameters"), "rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5e5}}), "rope_theta", 1e4);
  EXPECT_EQ(make_model(config)->facts().rope.theta, 5e5);
}

// What would be computed otherwise by whoever reads the key is not computed without it.
TEST(ConfigKeys, OtherArithmeticIsRefused) {
  const Json llama = small_config(), qwen = with(llama, "model_type", "qwen3");
  const auto expect = [](const Json& config, const std::string& part) {
    EXPECT_NE(refusal(config).find(part), std::string::npos) << refusal(config) << " lacks " << part;
  };
  for (const Json& base : {llama, qwen}) {
    EXPECT_EQ(refusal(base), "accepted");
    expect(with(base, "attention_dropout", 0.1), "'attention_dropout' is 0.1, allowed is 0");
    expect(with(base, "rope_interleave", true), "'rope_interleave' is true, allowed is false");
    expect(with(base, "final_logit_softcapping", 30.0), "'final_logit_softcapping' is 30.0, allowed is null");
    expect(with(base, "logit_scale", 0.5), "'logit_scale' is 0.5, allowed is 1");
    expect(with(base, "mlp_bias", true), "'mlp_bias' is true, allowed is false");
    expect(with(base, "auto_map", {{"AutoModelForCausalLM", "modeling_mine.Mine"}}), "'auto_map' names 'AutoModelForCausalLM'");
    const Json fine = {{"attention_dropout", 0.0}, {"rope_interleave", false}, {"logit_scale", 1.0}, {"mlp_bias", nullptr}, {"final_logit_softcapping", nullptr},
                       {"auto_map", {{"AutoTokenizer", "x"}}}, {"use_cache", false}, {"initializer_range", 1}, {"vendor_key", {1, 2}}};
    for (const auto& [key, value] : fine.items())
      EXPECT_EQ(refusal(with(base, key, value)), "accepted") << key;
  }
  expect(with(llama, "sliding_window", 4096), "'sliding_window' is 4096, allowed is null");
  EXPECT_EQ(refusal(with(qwen, "sliding_window", 4096)), "accepted");  // use_sliding_window says whether
  expect(with(qwen, "use_qk_norm", false), "'use_qk_norm' is false, allowed is true");
  expect(with(llama, "use_qk_norm", true), "'use_qk_norm' is true, allowed is false");
}

TEST(ConfigKeys, QuantisationOfAnotherKindIsRefused) {
  const Json fp8 = {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}, {"modules_to_not_convert", {"lm_head"}}};
  const auto of = [](const Json& quantisation) { return refusal(with(small_config(), "quantization_config", quantisation)); };
  EXPECT_EQ(of(fp8), "accepted");
  EXPECT_EQ(of(Json::object()), "accepted");
  EXPECT_EQ(of(nullptr), "accepted");
  const auto expect = [&](const Json& quantisation, const std::string& part) { EXPECT_NE(of(quantisation).find(part), std::string::npos) << of(quantisation) << " lacks " << part; };
  expect({{"quant_method", "gptq"}, {"bits", 4}}, "'quant_method' is \"gptq\", allowed is \"fp8\" (while reading 'quantization_config')");
  expect({{"bits", 4}}, "'quant_method' is missing");
  expect(with(fp8, "weight_block_size", {64, 64}), "'weight_block_size' is [64,64], allowed is [128,128]");
  expect(without(fp8, "weight_block_size"), "'weight_block_size' is missing");
  expect(with(fp8, "activation_scheme", "static"), "'activation_scheme' is \"static\"");
  expect(with(fp8, "fmt", "e5m2"), "'fmt' is \"e5m2\"");
  expect(Json::array({1}), "not a JSON object");
}

TEST(ConfigKeys, OfGlm) {
  const Json base = Json::parse(R"({
    "model_type": "glm_moe_dsa", "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "max_position_embeddings": 256, "q_lora_rank": 24, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 32,
    "intermediate_size": 64, "moe_intermediate_size": 16, "n_routed_experts": 6, "num_experts_per_tok": 2, "index_n_heads": 4, "index_head_dim": 16,
    "index_topk": 8, "mlp_layer_types": ["dense", "sparse"], "qk_head_dim": 24, "head_dim": 8, "num_experts": 6, "num_local_experts": 6,
    "rope_interleave": true, "indexer_rope_interleave": true, "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "layer_types": ["indexed_attention", "indexed_attention"]})");
  EXPECT_EQ(refusal(base), "accepted");
  const auto expect = [&](const std::string& key, const Json& value, const std::string& part) {
    const std::string said = refusal(with(base, key, value));
    EXPECT_NE(said.find(part), std::string::npos) << said << " lacks " << part;
  };
  expect("moe_layer_freq", 2, "'moe_layer_freq' is 2, allowed is 1");
  expect("rope_interleave", false, "'rope_interleave' is false, allowed is true");
  expect("indexer_rope_interleave", false, "'indexer_rope_interleave' is false, allowed is true");
  expect("num_experts", 8, "'num_experts' is 8, allowed is 6");
  expect("num_local_experts", 8, "'num_local_experts' is 8, allowed is 6");
  expect("num_key_value_heads", 2, "'num_key_value_heads' is 2, allowed is 4");
  expect("qk_head_dim", 32, "'qk_head_dim' is 32, allowed is 24");
  expect("layer_types", {"indexed_attention", "sliding_attention"}, "'layer_types' contains 'sliding_attention'");
  expect("mlp_bias", true, "'mlp_bias' is true");
  expect("sliding_window", 128, "'sliding_window' is 128");
}

// Values that no config should hold, one key at a time and two at a time: an Error or a model, nothing else.
TEST(DenseConfig, HostileValuesAreRefusedOrHarmless) {
  const std::vector<Json> values = {nullptr, -1, 0, 1, 2, 3, 65536, 16777216, INT64_MAX, -1e300, 1e300, 0.5, "", "llama3", true, Json::array(),
                                    Json::array({1, "x"}), Json::object(), Json{{"rope_type", "yarn"}, {"factor", 1e9}},
                                    Json{{"rope_type", "yarn"}, {"rope_theta", 1.0000001}, {"original_max_position_embeddings", 1}}};
  RandomSequence draws(3, RandomStream::fuzz);
  std::vector<std::string> keys = {"rope_scaling", "rope_theta", "tie_word_embeddings", "layer_types", "eos_token_id"};
  const Json base = small_config();
  for (const auto& [key, value] : base.items()) keys.push_back(key);
  int made = 0, refused = 0;
  const auto try_config = [&](const Json& config) {
    try {
      const std::unique_ptr<Model> model = make_model(config);
      EXPECT_GT(model->manifest().trained_size(), 0);
      if (model->facts().rope.rotary <= 4096) {
        for (const float x : rope_table(3, model->facts().rope)) EXPECT_TRUE(x >= -1e4f && x <= 1e4f) << config.dump();
      }
      ++made;
    } catch (const Error&) {
      ++refused;
    }
  };
  for (const std::string& key : keys)
    for (const Json& value : values) try_config(with(base, key, value));
  for (int i = 0; i < 2000; ++i) {
    const auto any = [&](const auto& list) { return list[draws.below(static_cast<std::uint32_t>(list.size()))]; };
    try_config(with(with(base, any(keys), any(values)), any(keys), any(values)));
  }
  EXPECT_GT(made, 100);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace lockstep
