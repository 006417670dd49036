#include "model/adapter_merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "model/adapter_initial.h"
#include "model/model.h"

namespace lockstep {
namespace {
constexpr const char* kMergedConfig = R"({
  "model_type": "qwen3", "vocab_size": 65, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 1024, "intermediate_size": 136, "rms_norm_eps": 1e-6,
  "rope_theta": 10000.0, "tie_word_embeddings": TIED, "hidden_act": "silu"})";

std::shared_ptr<const Model> small_model(bool tied) {
  std::string config = kMergedConfig;
  config.replace(config.find("TIED"), 4, tied ? "true" : "false");
  return make_model(Json::parse(config));
}

// An adapter whose B is not zero.
WeightImages moved_adapter(const AdapterLayout& layout) {
  WeightImages images = initial_adapter(layout, 3);
  std::uint64_t index = 0;
  NamedUniform uniform(5, "moved");
  for (const FileTensor& file : layout.manifest().files()) {
    if (!file.name.ends_with(".lora_B.weight")) continue;
    std::vector<float> values(static_cast<std::size_t>(file.size()));
    for (float& value : values) value = uniform(index++);
    layout.manifest().scatter(file, values.data(), images);
  }
  return images;
}

TEST(AdapterMerge, EveryAdaptedMatrixIsWPlusScaledBA) {
  const auto model = small_model(false);
  const Manifest& manifest = model->manifest();
  const AdapterLayout layout(manifest, {.rank = 3, .alpha = 12, .attention = true, .mlp = false, .unembedding = true});
  const WeightImages weights = initial_weights(manifest, 1, 0.02), adapter = moved_adapter(layout), merged = merged_weights(manifest, weights, layout, adapter);
  const auto values_of = [](const Manifest& of, const std::string& name, const WeightImages& images) {
    for (const FileTensor& file : of.files())
      if (file.name == name) {
        std::vector<float> values(static_cast<std::size_t>(file.size()));
        of.gather(file, images, values.data());
        return values;
      }
    return std::vector<float>{};
  };
  int adapted = 0;
  for (const FileTensor& file : manifest.files()) {
    const std::vector<float> before = values_of(manifest, file.name, weights), after = values_of(manifest, file.name, merged);
    const std::string module = "base_model.model." + file.name.substr(0, file.name.rfind(".weight"));
    const std::vector<float> a = values_of(layout.manifest(), module + ".lora_A.weight", adapter),
                             b = values_of(layout.manifest(), module + ".lora_B.weight", adapter);
    if (a.empty()) {
      EXPECT_EQ(before, after) << file.name;
      continue;
    }
    ++adapted;
    EXPECT_NE(before, after) << file.name;
    const auto columns = static_cast<std::size_t>(file.columns());
    for (std::size_t i = 0; i < after.size(); ++i) {
      double sum = 0;
      for (std::size_t r = 0; r < 3; ++r) sum += static_cast<double>(b[i / columns * 3 + r]) * static_cast<double>(a[r * columns + i % columns]);
      ASSERT_EQ(after[i], static_cast<float>(static_cast<double>(before[i]) + 4.0 * sum)) << file.name << " " << i;
    }
  }
  EXPECT_EQ(adapted, 2 * 4 + 1);
}

// gpt_oss' files hold all experts of a layer in a tensor, transposed, gate and up columns in turn: each expert's matrices have adapters of their
// own, and biases, sinks and router stay.
TEST(AdapterMerge, ExpertsOfOneTensorAreMergedEachByItself) {
  const auto model = make_model(Json::parse(R"({
    "model_type": "gpt_oss", "vocab_size": 65, "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "max_position_embeddings": 64, "intermediate_size": 7, "num_local_experts": 3, "num_experts_per_tok": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})"));
  const Manifest& manifest = model->manifest();
  const AdapterLayout layout(manifest, {.rank = 2, .alpha = 6, .attention = false, .mlp = true, .unembedding = false});
  const WeightImages weights = initial_weights(manifest, 1, 0.02), adapter = moved_adapter(layout), merged = merged_weights(manifest, weights, layout, adapter);
  std::map<std::string, FileTensor> adapters;
  for (const FileTensor& file : layout.manifest().files()) adapters.emplace(file.name, file);
  EXPECT_EQ(adapters.size(), 3u * 3 * 2);
  EXPECT_EQ(layout.modules(), (std::vector<std::string>{"down_proj", "gate_proj", "up_proj"}));
  const auto values = [](const Manifest& of, const FileTensor& file, const WeightImages& images) {
    std::vector<float> all(static_cast<std::size_t>(file.size()));
    of.gather(file, images, all.data());
    return all;
  };
  int adapted = 0;
  for (const FileTensor& file : tensors_by_layer(manifest)) {
    const std::vector<float> before = values(manifest, file, weights), after = values(manifest, file, merged);
    const std::string module = "base_model.model." + file.name.substr(0, file.name.rfind(".weight"));
    if (!adapters.contains(module + ".lora_A.weight")) {
      EXPECT_EQ(before, after) << file.name;
      continue;
    }
    ++adapted;
    const std::vector<float> a = values(layout.manifest(), adapters.at(module + ".lora_A.weight"), adapter),
                             b = values(layout.manifest(), adapters.at(module + ".lora_B.weight"), adapter);
    const auto columns = static_cast<std::size_t>(file.columns());
    for (std::size_t i = 0; i < after.size(); ++i) {
      double sum = 0;
      for (std::size_t r = 0; r < 2; ++r) sum += static_cast<double>(b[i / columns * 2 + r]) * static_cast<double>(a[r * columns + i % columns]);
      ASSERT_EQ(after[i], static_cast<float>(static_cast<double>(before[i]) + 3.0 * sum)) << file.name << " " << i;
    }
  }
  EXPECT_EQ(adapted, 9);
}

TEST(AdapterMerge, ATiedHeadIsRefused) {
  const auto model = small_model(true);
  const WeightImages weights = initial_weights(model->manifest(), 1, 0.02);
  const AdapterLayout head(model->manifest(), {.rank = 3, .alpha = 6, .attention = true, .mlp = true, .unembedding = true}),
      inner(model->manifest(), {.rank = 3, .alpha = 6});
  EXPECT_THROW(merged_weights(model->manifest(), weights, head, initial_adapter(head, 1)), Error);
  EXPECT_EQ(merged_weights(model->manifest(), weights, inner, initial_adapter(inner, 1)), weights);  // B is zero
}

TEST(AdapterMerge, NoraScalesEachColumnToLengthOne) {
  const auto model = small_model(false);
  const AdapterLayout layout(model->manifest(), {.rank = 8, .alpha = 16});
  const WeightImages plain = initial_adapter(layout, 9), nora = nora_adapter(layout, 9);
  EXPECT_NE(plain, nora);
  for (const FileTensor& file : layout.manifest().files()) {
    std::vector<float> before(static_cast<std::size_t>(file.size())), after(before.size());
    layout.manifest().gather(file, plain, before.data());
    layout.manifest().gather(file, nora, after.data());
    if (!file.name.ends_with(".lora_A.weight")) {
      EXPECT_EQ(before, after);
      continue;
    }
    const auto columns = static_cast<std::size_t>(file.columns());
    for (std::size_t k = 0; k < columns; ++k) {
      double squares = 0;
      for (std::size_t r = 0; r < 8; ++r) squares += static_cast<double>(after[r * columns + k]) * static_cast<double>(after[r * columns + k]);
      ASSERT_NEAR(std::sqrt(squares), 1.0, 1e-6) << file.name << " " << k;
      ASSERT_EQ(std::signbit(before[k]), std::signbit(after[k]));
    }
  }
}

}  // namespace
}  // namespace lockstep
