// Configs of families with experts: what is read, what is refused, and which tensors follow.
#include <gtest/gtest.h>

#include "model/archs/config_test_tools.h"

namespace lockstep {
namespace {

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

}  // namespace
}  // namespace lockstep
