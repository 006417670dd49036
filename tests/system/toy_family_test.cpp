// A model family that this test program alone has: grouped attention with normed queries and keys, a dense and a routed layer, tied embeddings. It is
// this one file, added to the registry by plant_family(). The tests that walk the registry (traced order of additions, parity in every layout of ranks,
// export, memorisation) then include it, which shows that a new family is one file and one line of the registry.
#include <gtest/gtest.h>

#include "model/archs/registry.h"
#include "model/blocks/decoder.h"
#include "model/blocks/grouped_attention.h"
#include "model/blocks/routed_mlp.h"
#include "system/golden_tools.h"

namespace lockstep {
namespace {

std::unique_ptr<Model> make_toy(const Json& config, const ModelOptions&) {
  auto model = std::make_unique<DecoderModel>(config, DecoderTraits{.model_type = kToyFamily});
  const ConfigReader c = model->reader();
  ModelFacts& facts = model->facts_to_fill();
  GroupedAttention::Traits heads;
  heads.q_norm = "q_norm.weight";
  heads.k_norm = "k_norm.weight";
  const auto attention = GroupedAttention::read(c, heads, facts, model->norm_eps());
  const auto dense = Mlp::read(c, {}, facts.hidden);
  const auto sparse = RoutedMlp::read(c, {}, facts, RoutedMlp::sparse_after_dense(c, facts.layers));
  model->build([&](Manifest& m, std::int64_t, const std::string& prefix) { return std::make_unique<GroupedAttention>(m, prefix + "self_attn.", attention); },
               [&](Manifest& m, std::int64_t layer, const std::string& prefix) -> std::unique_ptr<FeedForwardBlock> {
                 if (sparse.sparse[static_cast<std::size_t>(layer)]) return std::make_unique<RoutedMlp>(m, layer, prefix + "mlp.", sparse, facts);
                 return std::make_unique<Mlp>(m, prefix + "mlp.", dense);
               });
  return model;
}

const bool planted = plant_family({kToyFamily, make_toy});

TEST(ToyFamily, IsWalkedWithTheOthers) {
  EXPECT_TRUE(planted);
  const std::vector<std::string> names = all_families();
  EXPECT_EQ(names, (std::vector<std::string>{"deepseek_v3", "deepseek_v32", "glm_moe_dsa", "gpt_oss", "kimi_k2", "llama", "minimax_m2", "mistral", "qwen2",
                                             "qwen3", "qwen3_moe", kToyFamily}));
  const auto model = make_model(tiny_config(kToyFamily));
  EXPECT_EQ(model->facts().sparse_layers, 1);
  EXPECT_EQ(model->facts().expert_shape(), (ExpertShape{1, 2, 5}));
  // Weights that a token uses: all but three of five experts in one layer; the table is the head.
  EXPECT_EQ(trained_size(model->manifest()) - model->facts().active_size, 3 * 3 * 128 * 9);
}

}  // namespace
}  // namespace lockstep
