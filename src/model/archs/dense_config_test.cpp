// Configs of families without experts: what is read, and what is refused.
#include <gtest/gtest.h>

#include <map>

#include "model/archs/config_test_tools.h"

namespace lockstep {
namespace {

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
  expect(with(base, "layer_types", {"full_atention", "full_attention"}), "did you mean 'full_attention'?");
  expect(with(base, "hidden_act", "silo"), "'hidden_act' is \"silo\", allowed is \"silu\"; did you mean 'silu'?");
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
  EXPECT_EQ(make_model(config)->cache_shapes(profile_by_name("cpu-f32"))[0].entry, 2 * 6 * 8);  // llama: hidden / heads, as many as heads
  config["model_type"] = "qwen3";
  EXPECT_EQ(make_model(config)->cache_shapes(profile_by_name("cpu-f32"))[0].entry, 2 * 6 * 128);
  // Qwen3 of more than 32 heads: 32 key heads where nothing is said, as many as heads where null is.
  EXPECT_EQ(make_model(with(config, "num_attention_heads", 64))->cache_shapes(profile_by_name("cpu-f32"))[0].entry, 2 * 32 * 128);
  EXPECT_EQ(make_model(with(with(config, "num_attention_heads", 64), "num_key_value_heads", nullptr))->cache_shapes(profile_by_name("cpu-f32"))[0].entry,
            2 * 64 * 128);
  EXPECT_FALSE(make_model(config)->has_indexer());
  EXPECT_EQ(make_model(without(config, "max_position_embeddings"))->facts().max_positions, 32768);
}

TEST(DenseConfig, CountsATiedTableOnce) {
  const std::int64_t table = 31 * 48;
  const auto tied = make_model(with(small_config(), "tie_word_embeddings", true)), untied = make_model(small_config());
  EXPECT_EQ(trained_size(untied->manifest()), trained_size(tied->manifest()) + table);
  EXPECT_EQ(untied->facts().active_size, tied->facts().active_size);  // the head is used, the input embedding not counted
  EXPECT_EQ(tied->manifest().parameter(tied->facts().head).name, "model.embed_tokens.weight");
  EXPECT_EQ(untied->manifest().parameter(untied->facts().head).name, "lm_head.weight");
}

TEST(DenseConfig, OlderKeysMeanTheSame) {
  const Json scaled = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
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
  const Json config = with(with(without(small_config(), "rope_parameters"), "rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5e5}}),
                           "rope_theta", 1e4);
  EXPECT_EQ(make_model(config)->facts().rope.theta, 5e5);
}

TEST(DenseConfig, OfQwen2AndMistral) {
  const Json qwen2 = with(small_config(), "model_type", "qwen2");
  EXPECT_EQ(refusal(qwen2), "accepted");
  const auto model = make_model(qwen2);
  std::map<std::string, std::int64_t> biases;
  for (const FileTensor& file : model->manifest().files())
    if (file.name.ends_with(".bias")) biases[file.name] = file.size();
  EXPECT_EQ(biases.size(), 6u);  // of two layers
  EXPECT_EQ(biases.at("model.layers.1.self_attn.q_proj.bias"), 6 * 16);
  EXPECT_EQ(biases.at("model.layers.1.self_attn.v_proj.bias"), 2 * 16);
  const Json mistral = with(small_config(), "model_type", "mistral");
  EXPECT_EQ(make_model(mistral)->facts().window, 4096);  // as transformers, where the key is left out
  EXPECT_EQ(make_model(with(mistral, "sliding_window", nullptr))->facts().window, 0);
  EXPECT_EQ(make_model(with(mistral, "sliding_window", 7))->facts().window, 7);
  EXPECT_NE(refusal(with(mistral, "sliding_window", 0)).find("'sliding_window' is 0, allowed is an integer from 1"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
