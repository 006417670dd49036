// Configs of llama and qwen3: what is read, what is refused, and that no config at all crashes.
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
}

TEST(DenseConfig, WhatIsLeftOutIsWhatTransformersTakes) {
  Json config = without(without(small_config(), "head_dim"), "num_key_value_heads");
  EXPECT_EQ(make_model(config)->cache_shapes()[0].entry, 2 * 6 * 8);  // llama: hidden / heads, as many as heads
  config["model_type"] = "qwen3";
  EXPECT_EQ(make_model(config)->cache_shapes()[0].entry, 2 * 6 * 128);
  EXPECT_FALSE(make_model(config)->has_indexer());
  EXPECT_EQ(make_model(without(config, "max_position_embeddings"))->max_positions, 32768);
}

TEST(DenseConfig, CountsATiedTableOnce) {
  const std::int64_t table = 31 * 48;
  const auto tied = make_model(with(small_config(), "tie_word_embeddings", true)), untied = make_model(small_config());
  EXPECT_EQ(untied->manifest().trained_size(), tied->manifest().trained_size() + table);
  EXPECT_EQ(untied->active_size, tied->active_size);  // the head is used, the input embedding not counted
  EXPECT_EQ(tied->manifest().parameter(tied->head).name, "model.embed_tokens.weight");
  EXPECT_EQ(untied->manifest().parameter(untied->head).name, "lm_head.weight");
}

TEST(DenseConfig, OlderKeysMeanTheSame) {
  const Json scaled = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 64}};
  Json now = small_config(), before = without(small_config(), "rope_parameters");
  now["rope_parameters"] = scaled;
  now["rope_parameters"]["rope_theta"] = 500000.0;
  before["rope_scaling"] = scaled;
  before["rope_theta"] = 500000.0;
  const std::vector<float> table = rope_table(200, make_model(now)->rope);
  EXPECT_EQ(rope_table(200, make_model(before)->rope), table);
  before["rope_scaling"]["type"] = before["rope_scaling"]["rope_type"];
  before["rope_scaling"].erase("rope_type");
  EXPECT_EQ(rope_table(200, make_model(before)->rope), table);
  before["rope_scaling"] = nullptr;
  EXPECT_NE(rope_table(200, make_model(before)->rope), table);
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
      if (model->rope.rotary <= 4096) {
        for (const float x : rope_table(3, model->rope)) EXPECT_TRUE(x >= -1e4f && x <= 1e4f) << config.dump();
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
