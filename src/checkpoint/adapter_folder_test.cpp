#include "checkpoint/adapter_folder.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
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
