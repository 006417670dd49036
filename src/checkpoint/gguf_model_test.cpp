#include "checkpoint/gguf_model.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "checkpoint/gguf_config.h"
#include "checkpoint/gguf_test_tools.h"
#include "checkpoint/gguf_tokenizer.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/safetensors_test_tools.h"

namespace lockstep {
namespace {

// Keys of a model of two heads of 4, one for keys, and one layer.
GgufBytes keys_of(std::string_view architecture = "llama") {
  GgufBytes file;
  const auto name = [&](std::string_view key) { return std::string(architecture) + "." + std::string(key); };
  file.text("general.architecture", architecture);
  file.u32(name("block_count"), 1);
  file.u32(name("context_length"), 64);
  file.u32(name("embedding_length"), 8);
  file.u32(name("feed_forward_length"), 6);
  file.u32(name("attention.head_count"), 2);
  file.u32(name("attention.head_count_kv"), 1);
  file.f32(name("attention.layer_norm_rms_epsilon"), 1e-5f);
  file.f32(name("rope.freq_base"), 500000.0f);
  return file;
}

std::string ramp(std::size_t count, float from) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), from);
  return raw_floats(values);
}

GgufBytes with_tensors(GgufBytes file = keys_of()) {
  file.tensor("token_embd.weight", {10, 8}, 0, ramp(80, 0));
  file.tensor("output_norm.weight", {8}, 0, ramp(8, 1));
  file.tensor("blk.0.attn_norm.weight", {8}, 0, ramp(8, 2));
  file.tensor("blk.0.ffn_norm.weight", {8}, 0, ramp(8, 3));
  file.tensor("blk.0.attn_q.weight", {8, 8}, 0, ramp(64, 100));
  file.tensor("blk.0.attn_k.weight", {4, 8}, 0, ramp(32, 200));
  file.tensor("blk.0.attn_v.weight", {4, 8}, 0, ramp(32, 300));
  file.tensor("blk.0.attn_output.weight", {8, 8}, 0, ramp(64, 400));
  file.tensor("blk.0.ffn_gate.weight", {6, 8}, 0, ramp(48, 500));
  file.tensor("blk.0.ffn_up.weight", {6, 8}, 0, ramp(48, 600));
  file.tensor("blk.0.ffn_down.weight", {8, 6}, 0, ramp(48, 700));
  return file;
}

GgufFile opened_model(const GgufBytes& bytes) { return GgufFile::from_bytes(bytes.bytes(), "m.gguf"); }

class GgufModelTest : public testing::Test {
 protected:
  std::filesystem::path write(const GgufBytes& bytes) {
    const auto path = folder_.path() / "m.gguf";
    std::ofstream(path, std::ios::binary) << bytes.bytes();
    return path;
  }
  TemporaryFolder folder_;
};

TEST_F(GgufModelTest, LoadsAsAFolderOfTheSameValues) {
  const auto path = write(with_tensors());
  const LoadedModel loaded = load_model_folder(path);
  EXPECT_EQ(loaded.model->family(), "llama");
  const ModelFolderInfo info = model_folder_info(path);
  EXPECT_EQ(info.file_format, "GGUF version 3");
  ASSERT_EQ(info.stored.size(), 1u);
  EXPECT_EQ(info.stored[0].type.name, "F32");
  EXPECT_EQ(info.stored[0].type.tensors, 11);
  EXPECT_EQ(info.stored[0].exact_under, (std::vector<std::string>{"cpu-f32"}));
  const auto out = folder_.path() / "out";
  save_model_folder(out, *loaded.model, loaded.masters, {.dtype = DType::f32});
  EXPECT_EQ(load_model_folder(out).masters, loaded.masters);
  const SafetensorsFile file = SafetensorsFile::open(out / "model.safetensors");
  EXPECT_EQ(file.tensors().size(), 11u);
  EXPECT_EQ(file.read(file.tensor("model.layers.0.mlp.down_proj.weight"))[0], 700);
  // Of a head's four rows, the file has 0, 2, 1, 3.
  const std::vector<float> q = file.read(file.tensor("model.layers.0.self_attn.q_proj.weight"));
  const float first_of_rows[] = {100, 116, 108, 124, 132, 148, 140, 156};
  for (std::size_t row = 0; row < 8; ++row) EXPECT_EQ(q[row * 8], first_of_rows[row]) << row;
  EXPECT_EQ(file.read(file.tensor("model.layers.0.self_attn.v_proj.weight"))[8], 308);
}

TEST_F(GgufModelTest, SaysWhatIsWrongByTheFoldersNames) {
  GgufBytes lacking = keys_of();
  lacking.tensor("token_embd.weight", {10, 8}, 0, ramp(80, 0));
  expect_error(ErrorCode::corrupt_file, {"m.gguf", "lacks 10 of 11 tensors", "model.layers.0.input_layernorm.weight"},
               [&] { load_model_folder(write(lacking)); });
  GgufBytes surplus = with_tensors();
  surplus.tensor("blk.0.attn_sinks.weight", {2}, 0, ramp(2, 0));
  expect_error(ErrorCode::corrupt_file, {"1 tensors that the model does not know", "blk.0.attn_sinks.weight"}, [&] { load_model_folder(write(surplus)); });
  GgufBytes wrong = with_tensors(keys_of("gemma3"));
  expect_error(ErrorCode::unsupported, {"'general.architecture' is 'gemma3'", "llama, qwen2, qwen3, qwen3moe"}, [&] { load_model_folder(write(wrong)); });
  GgufBytes twins = with_tensors();
  twins.u32("llama.expert_count", 8);
  expect_error(ErrorCode::unsupported, {"'llama.expert_count' is 8, allowed is 0"}, [&] { load_model_folder(write(twins)); });
}

TEST(GgufTensors, ExpertsAreATensorEach) {
  GgufBytes bytes = keys_of("qwen3moe");
  bytes.u32("qwen3moe.attention.key_length", 6);
  bytes.u32("qwen3moe.expert_count", 2);
  bytes.u32("qwen3moe.expert_used_count", 1);
  bytes.u32("qwen3moe.expert_feed_forward_length", 3);
  bytes.tensor("token_embd.weight", {10, 8}, 0, ramp(80, 0));
  bytes.tensor("output.weight", {10, 8}, 0, ramp(80, 100));
  bytes.tensor("blk.0.ffn_gate_inp.weight", {2, 8}, 0, ramp(16, 200));
  bytes.tensor("blk.0.ffn_up_exps.weight", {2, 3, 8}, 0, ramp(48, 300));
  bytes.tensor("blk.0.attn_q_norm.weight", {6}, 0, ramp(6, 400));
  bytes.tensor("blk.0.attn_q.weight", {12, 8}, 0, ramp(96, 500));
  const GgufTensors tensors(opened_model(bytes));
  std::vector<std::string> names;
  for (const SafetensorsTensor& tensor : tensors.tensors()) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.gate.weight",
                                             "model.layers.0.mlp.experts.0.up_proj.weight", "model.layers.0.mlp.experts.1.up_proj.weight",
                                             "model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.q_proj.weight"}));
  const SafetensorsTensor* second = tensors.find("model.layers.0.mlp.experts.1.up_proj.weight");
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->shape, (std::vector<std::int64_t>{3, 8}));
  EXPECT_EQ(tensors.read_all(*second)[1], 325);
  EXPECT_EQ(tensors.read_all(*tensors.find("model.layers.0.self_attn.q_proj.weight"))[8], 508);  // rows as they are: only a llama's are paired
  const Json config = gguf_config(opened_model(bytes));
  EXPECT_EQ(config["model_type"], "qwen3_moe");
  EXPECT_EQ(config["head_dim"], 6);
  EXPECT_EQ(config["num_experts"], 2);
  EXPECT_EQ(config["moe_intermediate_size"], 3);
  EXPECT_EQ(config["norm_topk_prob"], true);
  EXPECT_EQ(config["tie_word_embeddings"], false);
  bytes.tensor("blk.0.ffn_gate_exps.weight", {3, 3, 8}, 0, ramp(72, 0));
  expect_error(ErrorCode::corrupt_file, {"'blk.0.ffn_gate_exps.weight' has the shape [3, 3, 8], and the model has 2 experts"},
               [&] { GgufTensors wrong(opened_model(bytes)); });
}

TEST(GgufConfig, SaysWhatTheMetadataSay) {
  GgufBytes bytes = with_tensors();
  bytes.u32("tokenizer.ggml.eos_token_id", 3);
  bytes.u32("tokenizer.ggml.eot_token_id", 5);
  bytes.u32("tokenizer.ggml.bos_token_id", 1);
  const GgufFile file = opened_model(bytes);
  const Json config = gguf_config(file);
  EXPECT_EQ(config["rms_norm_eps"].dump(), "1e-05");
  EXPECT_EQ(config["rope_parameters"], (Json{{"rope_theta", 500000.0}, {"rope_type", "default"}}));
  EXPECT_EQ(config["head_dim"], 4);
  EXPECT_EQ(config["vocab_size"], 10);
  EXPECT_EQ(config["tie_word_embeddings"], true);
  EXPECT_EQ(config["eos_token_id"], 3);
  EXPECT_EQ(gguf_generation_config(file), (Json{{"bos_token_id", 1}, {"eos_token_id", {3, 5}}}));
}

TEST(GgufConfig, RefusesOtherArithmetic) {
  GgufBytes window = keys_of();
  window.u32("llama.attention.sliding_window", 4096);
  expect_error(ErrorCode::unsupported, {"'llama.attention.sliding_window' is 4096, allowed is 0"}, [&] { gguf_config(opened_model(window)); });
  GgufBytes scaled = keys_of();
  scaled.f32("llama.logit_scale", 0.5f);
  expect_error(ErrorCode::unsupported, {"'llama.logit_scale' is 0.5, allowed is 1"}, [&] { gguf_config(opened_model(scaled)); });
  GgufBytes harmless = keys_of();
  harmless.u32("llama.attention.sliding_window", 0);
  harmless.text("general.type", "model");
  EXPECT_EQ(gguf_config(opened_model(harmless))["hidden_size"], 8);
  GgufBytes adapter = keys_of();
  adapter.text("general.type", "adapter");
  expect_error(ErrorCode::unsupported, {"'general.type' is 'adapter', allowed is model"}, [&] { gguf_config(opened_model(adapter)); });
}

TEST(GgufConfig, RopeScaling) {
  GgufBytes linear = keys_of();
  linear.text("llama.rope.scaling.type", "linear");
  linear.f32("llama.rope.scaling.factor", 2.0f);
  EXPECT_EQ(gguf_config(opened_model(linear))["rope_parameters"]["factor"], 2.0);
  GgufBytes old = keys_of();
  old.f32("llama.rope.scale_linear", 4.0f);
  EXPECT_EQ(gguf_config(opened_model(old))["rope_parameters"], (Json{{"rope_theta", 500000.0}, {"rope_type", "linear"}, {"factor", 4.0}}));
  GgufBytes yarn = keys_of();
  yarn.text("llama.rope.scaling.type", "yarn");
  yarn.f32("llama.rope.scaling.factor", 4.0f);
  yarn.u32("llama.rope.scaling.original_context_length", 16);
  yarn.f32("llama.rope.scaling.yarn_beta_fast", 16.0f);
  EXPECT_EQ(gguf_config(opened_model(yarn))["rope_parameters"],
            (Json{{"rope_theta", 500000.0}, {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}, {"beta_fast", 16.0}}));
  GgufBytes other = keys_of();
  other.text("llama.rope.scaling.type", "longrope");
  expect_error(ErrorCode::unsupported, {"'llama.rope.scaling.type' is 'longrope'"}, [&] { gguf_config(opened_model(other)); });
  // Divisors of four frequencies a head of 8 under Llama 3.2's scaling.
  const auto head_of_8 = [](float third) {
    GgufBytes file;
    file.text("general.architecture", "llama");
    for (const auto& [key, value] :
         {std::pair{"block_count", 1u}, {"context_length", 64u}, {"embedding_length", 8u}, {"feed_forward_length", 6u}, {"attention.head_count", 1u}})
      file.u32(std::string("llama.") + key, value);
    file.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    file.f32("llama.rope.freq_base", 500000.0f);
    file.tensor("rope_freqs.weight", {4}, 0, raw_floats({1, 1, third, 32}));
    return file;
  };
  // 2 pi 500000^(2/4) = 4442.9 positions lie between 8192 / 4 and 8192: smooth = (8192 / 4442.9 - 1) / 3 = 0.28129.
  const Json rope = gguf_config(opened_model(head_of_8(1.0f / (0.71871f / 32 + 0.28129f))))["rope_parameters"];
  EXPECT_EQ(rope["rope_type"], "llama3");
  EXPECT_EQ(rope["factor"], 32.0);
  EXPECT_EQ(rope["original_max_position_embeddings"], 8192);
  expect_error(ErrorCode::unsupported, {"element 2 of tensor 'rope_freqs.weight' is 16"}, [&] { gguf_config(opened_model(head_of_8(16))); });
}

GgufBytes with_tokens(std::string_view model, std::string_view pre) {
  GgufBytes file = keys_of();
  file.text("tokenizer.ggml.model", model);
  if (!pre.empty()) file.text("tokenizer.ggml.pre", pre);
  return file;
}

TEST(GgufTokenizer, RefusesByName) {
  GgufBytes unknown = with_tokens("gpt2", "qwen3");
  unknown.texts("tokenizer.ggml.tokens", {"a"});
  expect_error(ErrorCode::unsupported, {"'tokenizer.ggml.pre' is 'qwen3'", "llama-bpe", "did you mean 'qwen2'"},
               [&] { gguf_tokenizer(opened_model(unknown)); });
  expect_error(ErrorCode::unsupported, {"'tokenizer.ggml.model' is 't5', allowed are gpt2 and llama"},
               [&] { gguf_tokenizer(opened_model(with_tokens("t5", ""))); });
  GgufBytes twice = with_tokens("gpt2", "gpt-2");
  twice.texts("tokenizer.ggml.tokens", {"a", "b", "a"});
  expect_error(ErrorCode::corrupt_file, {"tokens 0 and 2 are both 'a'"}, [&] { gguf_tokenizer(opened_model(twice)); });
  GgufBytes kinds = with_tokens("gpt2", "gpt-2");
  kinds.texts("tokenizer.ggml.tokens", {"a", "b"});
  kinds.numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {1});
  expect_error(ErrorCode::corrupt_file, {"'tokenizer.ggml.token_type' has 1 entries, and there are 2 tokens"}, [&] { gguf_tokenizer(opened_model(kinds)); });
  GgufBytes broken = with_tokens("llama", "");
  broken.texts("tokenizer.ggml.tokens", {"\xff"});
  broken.numbers<float>("tokenizer.ggml.scores", 6, {0});
  broken.flag("tokenizer.ggml.add_bos_token", false);
  expect_error(ErrorCode::corrupt_file, {"no UTF-8"}, [&] { gguf_tokenizer(opened_model(broken)); });
  GgufBytes beyond = with_tokens("llama", "");
  beyond.texts("tokenizer.ggml.tokens", {"a"});
  beyond.numbers<float>("tokenizer.ggml.scores", 6, {0});
  beyond.u32("tokenizer.ggml.bos_token_id", 1);
  expect_error(ErrorCode::corrupt_file, {"'tokenizer.ggml.bos_token_id' is 1"}, [&] { gguf_tokenizer(opened_model(beyond)); });
}

TEST(GgufTokenizer, TemplatesByName) {
  GgufBytes one = with_tokens("gpt2", "gpt-2");
  one.texts("tokenizer.ggml.tokens", {"a"});
  one.text("tokenizer.chat_template", "T");
  EXPECT_EQ(gguf_chat_template(opened_model(one)), "T");
  EXPECT_EQ(gguf_tokenizer_config(opened_model(one))["chat_template"], "T");
  one.text("tokenizer.chat_template.tool_use", "U");
  EXPECT_FALSE(gguf_chat_template(opened_model(one)).has_value());
  EXPECT_EQ(gguf_tokenizer_config(opened_model(one))["chat_template"],
            (Json{{{"name", "default"}, {"template", "T"}}, {{"name", "tool_use"}, {"template", "U"}}}));
}

TEST(GgufFolder, HasWhatTheFileSays) {
  const GgufFolder bare(opened_model(with_tensors()));
  EXPECT_TRUE(bare.has("config.json"));
  for (const char* name : {"tokenizer.json", "generation_config.json", "chat_template.jinja", "notes.txt"}) EXPECT_FALSE(bare.has(name)) << name;
  expect_error(ErrorCode::not_found, {"m.gguf", "tokenizer.json"}, [&] { bare.read("tokenizer.json", 100); });
  expect_error(ErrorCode::resource_exhausted, {"m.gguf (config.json)", "longer than the 10 bytes"}, [&] { bare.read("config.json", 10); });
}

}  // namespace
}  // namespace lockstep
