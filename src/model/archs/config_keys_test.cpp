// Keys that ask for other arithmetic are refused, and no config at all crashes.
#include <gtest/gtest.h>

#include <fstream>

#include "base/philox.h"
#include "model/archs/config_test_tools.h"

namespace lockstep {
namespace {

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
    expect(with(base, "auto_map", {{"AutoModel", {"modeling_mine.Mine"}}}), "'auto_map' names 'AutoModel'");
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

// Folders of DeepSeek-V3, Kimi K2 and MiniMax-M2 as they were published name the code of their own family, which came before transformers' class.
TEST(ConfigKeys, CodeOfTheFamilyItselfIsTakenAndOtherCodeIsRefused) {
  const auto of = [](const std::string& file, const Json& code) {
    std::ifstream in(std::string(LOCKSTEP_SOURCE_DIR) + "/shapes/configs/" + file + ".json");
    const Json config = Json::parse(in);
    return refusal(with(config, "auto_map", code));
  };
  const Json deepseek = {{"AutoConfig", "configuration_deepseek.DeepseekV3Config"},
                         {"AutoModel", "modeling_deepseek.DeepseekV3Model"},
                         {"AutoModelForCausalLM", "modeling_deepseek.DeepseekV3ForCausalLM"}};
  const Json minimax = {{"AutoConfig", "configuration_minimax_m2.MiniMaxM2Config"}, {"AutoModelForCausalLM", "modeling_minimax_m2.MiniMaxM2ForCausalLM"}};
  EXPECT_EQ(of("deepseek-v3", deepseek), "accepted");
  EXPECT_EQ(of("kimi-k2", deepseek), "accepted");
  EXPECT_EQ(of("minimax-m2p5", minimax), "accepted");
  EXPECT_EQ(of("minimax-m2p5", {{"AutoModelForCausalLM", "MiniMaxAI/MiniMax-M2.1--modeling_minimax_m2.MiniMaxM2ForCausalLM"}}), "accepted");
  for (const char* other : {"modeling_mine.DeepseekV3", "modeling_mine.ForCausalLM", "modeling_minimax_m2.MiniMaxM2ForCausalLM", "DeepseekV32ForCausalLM", ""})
    EXPECT_NE(of("deepseek-v3", {{"AutoModelForCausalLM", other}}).find("allowed are classes of 'deepseek_v3' itself"), std::string::npos) << other;
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
