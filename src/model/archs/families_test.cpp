// Configs of families: what is read, what is refused, and that no config at all crashes.
#include <gtest/gtest.h>

#include <map>

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
    const Json fine = {{"attention_dropout", 0.0},
                       {"rope_interleave", false},
                       {"logit_scale", 1.0},
                       {"mlp_bias", nullptr},
                       {"final_logit_softcapping", nullptr},
                       {"auto_map", {{"AutoTokenizer", "x"}}},
                       {"use_cache", false},
                       {"initializer_range", 1},
                       {"vendor_key", {1, 2}}};
    for (const auto& [key, value] : fine.items()) EXPECT_EQ(refusal(with(base, key, value)), "accepted") << key;
  }
  expect(with(llama, "sliding_window", 4096), "'sliding_window' is 4096, allowed is null");
  EXPECT_EQ(refusal(with(qwen, "sliding_window", 4096)), "accepted");  // use_sliding_window says whether
  expect(with(qwen, "use_qk_norm", false), "'use_qk_norm' is false, allowed is true");
  expect(with(llama, "use_qk_norm", true), "'use_qk_norm' is true, allowed is false");
}

TEST(ConfigKeys, QuantisationOfAnotherKindIsRefused) {
  const Json fp8 = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}, {"modules_to_not_convert", {"lm_head"}}};
  const auto of = [](const Json& quantisation) { return refusal(with(small_config(), "quantization_config", quantisation)); };
  EXPECT_EQ(of(fp8), "accepted");
  EXPECT_EQ(of(Json::object()), "accepted");
  EXPECT_EQ(of(nullptr), "accepted");
  const auto expect = [&](const Json& quantisation, const std::string& part) {
    EXPECT_NE(of(quantisation).find(part), std::string::npos) << of(quantisation) << " lacks " << part;
  };
  expect({{"quant_method", "gptq"}, {"bits", 4}},
         "'quant_method' is \"gptq\", allowed is \"fp8\" or \"mxfp8\" or \"compressed-tensors\" or \"mxfp4\" (while reading 'quantization_config')");
  expect({{"quant_method", "compressed_tensors"}}, "did you mean 'compressed-tensors'? (while reading 'quantization_config')");
  expect({{"bits", 4}}, "'quant_method' is missing");
  expect(with(fp8, "weight_block_size", {64, 64}), "'weight_block_size' is [64,64], allowed is [128,128]");
  expect(without(fp8, "weight_block_size"), "'weight_block_size' is missing");
  expect(with(fp8, "activation_scheme", "static"), "'activation_scheme' is \"static\"");
  expect(with(fp8, "fmt", "e5m2"), "'fmt' is \"e5m2\"");
  expect(Json::array({1}), "not a JSON object");

  Json packed = Json::parse(R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed", "ignore": ["lm_head"],
    "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": null, "weights": {"num_bits": 4, "type": "int", "symmetric": true,
    "strategy": "group", "group_size": 32, "dynamic": false, "actorder": null, "observer": "minmax"}}}})");
  EXPECT_EQ(of(packed), "accepted");
  const auto expect_weights = [&](const char* key, const Json& value, const std::string& part) {
    Json other = packed;
    other["config_groups"]["group_0"]["weights"][key] = value;
    expect(other, part);
  };
  expect_weights("group_size", 64, "'group_size' is 64, allowed is 32 (while reading the group \"group_0\"; while reading 'quantization_config')");
  expect_weights("symmetric", false, "'symmetric' is false, allowed is true");
  expect_weights("strategy", "channel", "'strategy' is \"channel\", allowed is \"group\"");
  expect_weights("num_bits", 8, "'num_bits' is 8, allowed is 4");
  expect_weights("actorder", "group", "'actorder' is \"group\"");
  expect_weights("group_size", nullptr, "'group_size' is missing, allowed is 32");
  expect(with(packed, "format", "nvfp4-pack-quantized"), "'format' is \"nvfp4-pack-quantized\", allowed is \"pack-quantized\"");
  expect(with(packed, "kv_cache_scheme", {{"num_bits", 8}}), "'kv_cache_scheme' is {\"num_bits\":8}");
  expect(without(packed, "config_groups"), "'config_groups' is missing, allowed is an object");
  expect(with(packed, "config_groups", {{"group_0", 3}}), "config.json is not a JSON object (while reading the group \"group_0\"");
  packed["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}};
  expect(packed, "'input_activations' is {\"num_bits\":8}, allowed is null");
}

TEST(ConfigKeys, OfGlm) {
  const Json base = Json::parse(R"({
    "model_type": "glm_moe_dsa", "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "max_position_embeddings": 256, "q_lora_rank": 24, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 32,
    "intermediate_size": 64, "moe_intermediate_size": 16, "n_routed_experts": 6, "num_experts_per_tok": 2, "index_n_heads": 4, "index_head_dim": 16,
    "index_topk": 8, "mlp_layer_types": ["dense", "sparse"], "qk_head_dim": 24, "head_dim": 8, "num_experts": 6, "num_local_experts": 6,
    "rope_interleave": true, "indexer_rope_interleave": true, "moe_layer_freq": 1, "num_nextn_predict_layers": 1,
    "layer_types": ["indexed_attention", "indexed_attention"]})");
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
  expect("layer_types", {"indexed_attention", "indexed_atention"}, "did you mean 'indexed_attention'?");
  expect("mlp_bias", true, "'mlp_bias' is true");
  expect("sliding_window", 128, "'sliding_window' is 128");
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

Json small_gpt_oss() {
  Json config = with(small_config(), "model_type", "gpt_oss");
  config["num_local_experts"] = 4, config["num_experts_per_tok"] = 2, config["attention_bias"] = true;
  config["sliding_window"] = 7;
  return config;
}

TEST(ExpertsConfig, OfGptOss) {
  const Json base = small_gpt_oss();
  EXPECT_EQ(refusal(base), "accepted");
  const auto model = make_model(base);
  EXPECT_EQ(model->facts().window, 7);
  EXPECT_EQ(model->facts().windowed_layers, 1);  // the first of two: every second one where the config does not say
  EXPECT_TRUE(model->facts().sinks);
  EXPECT_EQ(model->facts().sparse_layers, 2);
  EXPECT_EQ(make_model(with(base, "layer_types", {"sliding_attention", "sliding_attention"}))->facts().windowed_layers, 2);
  EXPECT_EQ(make_model(with(base, "layer_types", {"full_attention", "full_attention"}))->facts().window, 0);
  EXPECT_EQ(make_model(without(base, "sliding_window"))->facts().window, 128);
  const RopeSpec left_out = make_model(without(without(base, "rope_parameters"), "rope_theta"))->facts().rope;
  EXPECT_EQ(left_out.scaling, RopeSpec::Scaling::yarn);  // as transformers
  EXPECT_EQ(left_out.factor, 32);
  EXPECT_EQ(left_out.original_positions, 4096);
  EXPECT_EQ(left_out.theta, 150000);
  EXPECT_FALSE(left_out.truncate);
  const auto expect = [&](const std::string& key, const Json& value, const std::string& part) {
    const std::string said = refusal(with(base, key, value));
    EXPECT_NE(said.find(part), std::string::npos) << said << " lacks " << part;
  };
  expect("layer_types", {"sliding_attention", "sliding_atention"}, "did you mean 'sliding_attention'?");
  expect("layer_types", {"sliding_attention"}, "'layer_types'");
  expect("sliding_window", nullptr, "'sliding_window' is null, and 1 layers have sliding_attention; allowed is an integer from 1 on");
  expect("swiglu_limit", 0, "'swiglu_limit' is 0");
  expect("swiglu_limit", nullptr, "accepted");  // 7
  expect("attention_bias", false, "'attention_bias' is false, allowed is true");
  expect("experts_per_token", 3, "'experts_per_token' is 3, allowed is 2");
  expect("norm_topk_prob", false, "'norm_topk_prob' is false, allowed is true");
  EXPECT_NE(refusal(with(small_config(), "swiglu_limit", 7.0)).find("'swiglu_limit' is 7.0, allowed is null"), std::string::npos);
}

// gpt-oss 20b and 120b, as published: as many parameters and tensors as transformers counts on the meta device.
TEST(ExpertsConfig, GptOssAtItsRealSizes) {
  struct Size {
    std::int64_t layers, experts, parameters, tensors;
  };
  for (const Size& size : {Size{24, 32, 20'914'757'184, 411}, Size{36, 128, 116'829'156'672, 615}}) {
    Json config = Json::parse(R"({
      "model_type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
      "intermediate_size": 2880, "num_experts_per_tok": 4, "experts_per_token": 4, "attention_bias": true, "eos_token_id": 200002,
      "initial_context_length": 4096, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 150000, "sliding_window": 128,
      "swiglu_limit": 7.0, "tie_word_embeddings": false, "router_aux_loss_coef": 0.9, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0,
      "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}})");
    config["num_hidden_layers"] = size.layers, config["num_local_experts"] = size.experts;
    const auto model = make_model(config);
    EXPECT_EQ(trained_size(model->manifest()), size.parameters);
    EXPECT_EQ(static_cast<std::int64_t>(model->manifest().files().size()), size.tensors);
    EXPECT_EQ(model->facts().windowed_layers, size.layers / 2);
  }
}

// The tensors as transformers names them, and where their elements go: experts transposed, gate and up columns in turn.
TEST(ExpertsConfig, GptOssFilesHoldExpertsTransposedAndInTurn) {
  const auto model = make_model(small_gpt_oss());
  const Manifest& manifest = model->manifest();
  const std::int64_t h = model->facts().hidden, E = 4;
  std::map<std::string, const FileTensor*> files;
  for (const FileTensor& file : manifest.files()) files[file.name] = &file;
  const std::string layer = "model.layers.1.", experts = layer + "mlp.experts.";
  const std::int64_t width = files.at(experts + "down_proj")->shape[1];
  const std::map<std::string, std::vector<std::int64_t>> shapes = {
      {layer + "self_attn.sinks", {6}},       {layer + "self_attn.o_proj.bias", {h}},        {layer + "mlp.router.weight", {E, h}},
      {layer + "mlp.router.bias", {E}},       {experts + "gate_up_proj", {E, h, 2 * width}}, {experts + "gate_up_proj_bias", {E, 2 * width}},
      {experts + "down_proj", {E, width, h}}, {experts + "down_proj_bias", {E, h}}};
  for (const auto& [name, shape] : shapes) EXPECT_EQ(files.at(name)->shape, shape) << name;
  WeightImages images(manifest.parameters().size());
  for (const auto& [name, file] : files) {
    std::vector<float> values(static_cast<std::size_t>(file->size())), back(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    manifest.scatter(*file, values.data(), images);
    manifest.gather(*file, images, back.data());
    EXPECT_EQ(back, values) << name;
  }
  const auto element = [&](const std::string& part, std::int64_t e, std::int64_t n, std::int64_t k) {
    for (std::size_t i = 0; i < images.size(); ++i)
      if (manifest.parameters()[i].name == experts + part) return images[i][static_cast<std::size_t>(manifest.parameters()[i].offset(e, n, k))];
    return -1.0f;
  };
  EXPECT_EQ(element("gate", 2, 3, 5), static_cast<float>((2 * h + 5) * 2 * width + 2 * 3));
  EXPECT_EQ(element("up", 2, 3, 5), static_cast<float>((2 * h + 5) * 2 * width + 2 * 3 + 1));
  EXPECT_EQ(element("down", 1, 7, 4), static_cast<float>((width + 4) * h + 7));
  EXPECT_EQ(element("gate_bias", 3, 0, 4), static_cast<float>(3 * 2 * width + 8));
  EXPECT_EQ(element("up_bias", 3, 0, 4), static_cast<float>(3 * 2 * width + 9));
  // Adapters know each expert's layer by itself.
  std::vector<std::string> layers;
  for (const FileTensor& file : tensors_by_layer(manifest))
    if (file.name.starts_with(experts + "2.")) layers.push_back(file.name.substr(experts.size()));
  EXPECT_EQ(layers, (std::vector<std::string>{"2.gate_proj.weight", "2.up_proj.weight", "2.down_proj.weight"}));
}

Json small_experts(const std::string& type) {
  Json config = with(small_config(), "model_type", type);
  config["num_experts"] = 6;
  config["num_experts_per_tok"] = 2;
  if (type == "qwen3_moe") config["moe_intermediate_size"] = 5;
  return config;
}

TEST(ExpertsConfig, OfQwen3Moe) {
  const Json base = small_experts("qwen3_moe");
  const auto layers = [](const Json& config) { return make_model(config)->facts().sparse_layers; };
  EXPECT_EQ(layers(base), 2);
  EXPECT_TRUE(make_model(base)->facts().router_biases.empty());
  EXPECT_EQ(layers(with(base, "mlp_only_layers", {1})), 1);
  EXPECT_EQ(layers(with(base, "mlp_only_layers", nullptr)), 2);
  EXPECT_EQ(layers(with(base, "decoder_sparse_step", 2)), 1);
  EXPECT_EQ(make_model(with(without(base, "num_experts"), "num_local_experts", 6))->facts().expert_count, 6);
  EXPECT_EQ(make_model(with(base, "num_local_experts", 6))->facts().expert_count, 6);
  const auto expect = [&](const Json& config, const std::string& part) {
    EXPECT_NE(refusal(config).find(part), std::string::npos) << refusal(config) << " lacks " << part;
  };
  expect(with(base, "num_local_experts", 5), "'num_local_experts' is 5, allowed is 6");
  expect(without(base, "num_experts"), "'num_experts' is missing");
  expect(with(base, "num_experts_per_tok", 7), "'num_experts_per_tok' is 7");
  expect(with(base, "decoder_sparse_step", 0), "'decoder_sparse_step' is 0");
  expect(with(base, "mlp_only_layers", "all"), "'mlp_only_layers' is");
  expect(with(base, "n_group", 2), "'n_group' is 2, allowed is 1");
}

TEST(ExpertsConfig, OfMiniMax) {
  const Json base = small_experts("minimax_m2");
  const auto rotary = [](const Json& config) { return make_model(config)->facts().rope.rotary; };
  EXPECT_EQ(rotary(base), 16);
  EXPECT_EQ(rotary(with(base, "rotary_dim", 8)), 8);
  EXPECT_EQ(rotary(with(base, "partial_rotary_factor", 0.25)), 4);
  Json inner = base;
  inner["rope_parameters"]["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(rotary(with(inner, "rotary_dim", 4)), 8);  // the inner one rules, as in transformers
  EXPECT_EQ(make_model(base)->facts().router_biases.size(), 2u);
  const auto expect = [&](const Json& config, const std::string& part) {
    EXPECT_NE(refusal(config).find(part), std::string::npos) << refusal(config) << " lacks " << part;
  };
  expect(with(base, "partial_rotary_factor", 0.2), "3 of the 16 columns of a head turn; allowed are even numbers");
  expect(with(base, "rotary_dim", 32), "'rotary_dim' is 32");
  expect(with(base, "attn_type_list", {1, 0}), "'attn_type_list' contains 0, allowed is 1");
  expect(with(base, "tie_word_embeddings", 1), "'tie_word_embeddings' is 1");
}

Json small_deepseek() {
  return Json::parse(R"({
    "model_type": "deepseek_v3", "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "max_position_embeddings": 256, "q_lora_rank": 24, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 32,
    "intermediate_size": 64, "moe_intermediate_size": 16, "n_routed_experts": 12, "num_experts_per_tok": 4, "first_k_dense_replace": 1,
    "n_group": 4, "topk_group": 2, "rope_theta": 10000.0,
    "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 64}})");
}

TEST(ExpertsConfig, OfDeepSeek) {
  const Json base = small_deepseek();
  const auto model = make_model(base);
  EXPECT_EQ(model->facts().sparse_layers, 1);
  EXPECT_FALSE(model->has_indexer());
  EXPECT_NEAR(model->facts().rope.softmax_factor, 1.3688879 * 1.3688879, 1e-6);
  EXPECT_EQ(model->facts().rope.attention_factor, 1.0);
  EXPECT_EQ(model->cache_shapes(profile_by_name("cpu-f32"))[0].index_key, 0);
  EXPECT_EQ(refusal(with(base, "model_type", "kimi_k2")), "accepted");
  EXPECT_TRUE(make_model(with(base, "rope_interleave", false))->facts().rope.half);
  const auto names = [](const Model& of) {
    std::string all;
    for (const FileTensor& file : of.manifest().files()) all += file.name + "\n";
    return all;
  };
  EXPECT_NE(names(*make_model(with(base, "q_lora_rank", nullptr))).find("self_attn.q_proj.weight"), std::string::npos);
  const auto expect = [&](const std::string& key, const Json& value, const std::string& part) {
    const std::string said = refusal(with(base, key, value));
    EXPECT_NE(said.find(part), std::string::npos) << said << " lacks " << part;
  };
  expect("n_group", 5, "'n_group' is 5, allowed are divisors of the 12 experts");
  expect("n_group", 12, "'n_group' is 12, allowed are divisors of the 12 experts that leave two or more a group");
  expect("topk_group", 5, "'topk_group' is 5");
  expect("topk_group", 1, "'topk_group' is 1: 3 experts remain, and 'num_experts_per_tok' is 4");
  expect("index_topk", 8, "'index_topk' is 8, allowed is null");
  expect("attention_bias", true, "'attention_bias' is true");
  const auto refused = [](const Model& of, const char* profile) { return of.profile_refusal(profile_by_name(profile)); };
  EXPECT_EQ(refused(*model, "cpu-bf16w-expanded"), "");
  EXPECT_EQ(refused(*make_model(small_config()), "cpu-f32-expanded"),
            "profile 'cpu-f32-expanded' keeps each head's own key and value of latent attention over all keys, and a model of type llama has no latent "
            "attention; allowed is cpu-f32");
  Json indexed = with(base, "model_type", "deepseek_v32");
  EXPECT_NE(refusal(indexed).find("'index_n_heads' is missing"), std::string::npos);
  indexed["index_n_heads"] = 2, indexed["index_head_dim"] = 16, indexed["index_topk"] = 8;
  EXPECT_NE(refusal(with(indexed, "layer_types", {"deepseek_sparse_atention", "indexed_attention"})).find("did you mean 'deepseek_sparse_attention'?"),
            std::string::npos);
  const auto v32 = make_model(indexed);
  EXPECT_TRUE(v32->has_indexer());
  EXPECT_EQ(refused(*v32, "cpu-bf16w-expanded"),
            "profile 'cpu-bf16w-expanded' keeps each head's own key and value of latent attention over all keys, and a model of type deepseek_v32 has an "
            "indexer, which selects keys that all heads share; allowed is cpu-bf16w");
  EXPECT_EQ(refused(*v32, "cpu-bf16w"), "");
  EXPECT_FALSE(v32->facts().rope.half);
  ASSERT_TRUE(v32->facts().index_rope.has_value());
  EXPECT_TRUE(v32->facts().index_rope->half);
  EXPECT_NE(refusal(with(indexed, "q_lora_rank", nullptr)).find("'q_lora_rank' is missing"), std::string::npos);
}

// Values that no config should hold, one key at a time and two at a time: an Error or a model, nothing else.
void expect_hostile_values_do_no_harm(const Json& base, std::vector<std::string> keys, int pairs) {
  const std::vector<Json> values = {nullptr,
                                    -1,
                                    0,
                                    1,
                                    2,
                                    3,
                                    65536,
                                    16777216,
                                    INT64_MAX,
                                    -1e300,
                                    1e300,
                                    0.5,
                                    "",
                                    "llama3",
                                    true,
                                    Json::array(),
                                    Json::array({1, "x"}),
                                    Json::object(),
                                    Json{{"rope_type", "yarn"}, {"factor", 1e9}},
                                    Json{{"rope_type", "yarn"}, {"rope_theta", 1.0000001}, {"original_max_position_embeddings", 1}}};
  RandomSequence draws(3, RandomStream::fuzz);
  for (const auto& [key, value] : base.items()) keys.push_back(key);
  int made = 0, refused = 0;
  const auto try_config = [&](const Json& config) {
    try {
      const std::unique_ptr<Model> model = make_model(config);
      EXPECT_GT(trained_size(model->manifest()), 0);
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
  for (int i = 0; i < pairs; ++i) {
    const auto any = [&](const auto& list) { return list[draws.below(static_cast<std::uint32_t>(list.size()))]; };
    try_config(with(with(base, any(keys), any(values)), any(keys), any(values)));
  }
  EXPECT_GT(made, 100 * pairs / 2000);
  EXPECT_GT(refused, 500 * pairs / 2000);
}

TEST(DenseConfig, HostileValuesAreRefusedOrHarmless) {
  const std::vector<std::string> more = {"rope_scaling", "rope_theta", "tie_word_embeddings", "layer_types", "eos_token_id"};
  expect_hostile_values_do_no_harm(small_config(), more, 2000);
  expect_hostile_values_do_no_harm(with(with(small_config(), "model_type", "mistral"), "sliding_window", 7), more, 500);
}

TEST(ExpertsConfig, HostileValuesAreRefusedOrHarmless) {
  expect_hostile_values_do_no_harm(small_experts("qwen3_moe"), {"mlp_only_layers", "decoder_sparse_step", "norm_topk_prob", "num_local_experts"}, 500);
  expect_hostile_values_do_no_harm(small_experts("minimax_m2"), {"rotary_dim", "partial_rotary_factor", "attn_type_list", "num_local_experts"}, 500);
  expect_hostile_values_do_no_harm(
      small_gpt_oss(), {"layer_types", "sliding_window", "swiglu_alpha", "swiglu_limit", "num_experts", "experts_per_token", "rope_parameters"}, 500);
  const std::vector<std::string> more = {"rope_interleave",       "mlp_layer_types", "n_shared_experts",
                                         "routed_scaling_factor", "norm_topk_prob",  "rope_parameters"};
  expect_hostile_values_do_no_harm(small_deepseek(), more, 500);
  Json indexed = with(small_deepseek(), "model_type", "deepseek_v32");
  indexed["index_n_heads"] = 2, indexed["index_head_dim"] = 16, indexed["index_topk"] = 8;
  expect_hostile_values_do_no_harm(indexed, more, 500);
}

}  // namespace
}  // namespace lockstep
