#include "checkpoint/adapter_folder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "model/model.h"

namespace lockstep {
namespace {
constexpr const char* kConfig = R"({
  "model_type": "qwen3", "vocab_size": 65, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 1024, "intermediate_size": 136, "rms_norm_eps": 1e-6,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu"})";

struct AdapterFolder : ::testing::Test {
  std::shared_ptr<const Model> model = make_model(Json::parse(kConfig));
  std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
  AdapterLayout layout{model->manifest(), {.rank = 5, .alpha = 12, .attention = true, .mlp = false, .unembedding = true}};
  WeightImages images = initial_adapter(layout, 3);
  void SetUp() override { std::filesystem::remove_all(path); }
  void TearDown() override { std::filesystem::remove_all(path); }
  std::string refusal() {
    try {
      load_adapter_folder(path, model->manifest());
    } catch (const Error& e) {
      return e.what();
    }
    return "taken";
  }
};

TEST_F(AdapterFolder, ComesBackBitForBit) {
  save_adapter_folder(path, layout, images, "a/model");
  const LoadedAdapter loaded = load_adapter_folder(path, model->manifest());
  EXPECT_EQ(loaded.layout->settings().rank, 5);
  EXPECT_EQ(loaded.layout->settings().alpha, 12);
  EXPECT_TRUE(loaded.layout->settings().attention && loaded.layout->settings().unembedding && !loaded.layout->settings().mlp);
  EXPECT_EQ(loaded.images, images);
  EXPECT_THROW(save_adapter_folder(path, layout, images, "a/model"), Error);
}

TEST_F(AdapterFolder, ModulesThatAreLeftAloneAreZeros) {
  save_adapter_folder(path, layout, images, "a/model");
  // PEFT's habit: q_proj and v_proj alone.
  const auto keep = [&](const auto& wanted) {
    const SafetensorsFile whole = SafetensorsFile::open(path / "adapter_model.safetensors");
    std::vector<SafetensorsWriter::Entry> entries;
    for (const SafetensorsTensor& t : whole.tensors())
      if (wanted(t.name)) entries.push_back({t.name, SafetensorsType::f32, t.shape});
    std::string bytes;
    SafetensorsWriter writer([&](const void* data, std::size_t size) { bytes.append(static_cast<const char*>(data), size); }, entries);
    for (const SafetensorsWriter::Entry& entry : writer.entries()) writer.write(whole.read(whole.tensor(entry.name)));
    writer.finish();
    write_file_atomic(path / "adapter_model.safetensors", bytes);
  };
  keep([](const std::string& name) { return name.find("q_proj") != std::string::npos || name.find("v_proj") != std::string::npos; });
  const LoadedAdapter loaded = load_adapter_folder(path, model->manifest());
  EXPECT_TRUE(loaded.layout->settings().attention && !loaded.layout->settings().unembedding);
  std::int64_t zeros = 0, others = 0;
  std::vector<float> values;
  for (const FileTensor& tensor : loaded.layout->manifest().files()) {
    values.resize(static_cast<std::size_t>(tensor.size()));
    loaded.layout->manifest().gather(tensor, loaded.images, values.data());
    const bool zero = std::all_of(values.begin(), values.end(), [](float v) { return v == 0; });
    if (tensor.name.ends_with("lora_A.weight")) ++(zero ? zeros : others);
  }
  EXPECT_EQ(zeros, 4);  // k_proj and o_proj of two layers
  EXPECT_EQ(others, 4);
  keep([](const std::string& name) { return name.find("0.self_attn.q_proj.lora_A") == std::string::npos; });
  EXPECT_NE(refusal().find("has no tensor 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight'"), std::string::npos) << refusal();
}

TEST_F(AdapterFolder, WhatCannotBeIsRefused) {
  save_adapter_folder(path, layout, images, "a/model");
  const std::string config = read_file(path / "adapter_config.json", 1 << 16);
  const auto with = [&](const char* field, const Json& value) {
    Json changed = Json::parse(config);
    changed[field] = value;
    write_file_atomic(path / "adapter_config.json", changed.dump());
    return refusal();
  };
  EXPECT_NE(with("use_dora", true).find("use_dora is true"), std::string::npos);
  EXPECT_NE(with("peft_type", "IA3").find("allowed is LORA"), std::string::npos);
  EXPECT_NE(with("r", 4).find("has shape [5, 48], allowed is [4, 48]"), std::string::npos);
  EXPECT_EQ(with("lora_alpha", 7), "taken");
  EXPECT_NE(with("r", 0).find("rank"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
