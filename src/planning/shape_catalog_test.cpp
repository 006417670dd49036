// The catalog: its rows, the parameter counts computed from dimensions, and which files are refused.
#include "planning/shape_catalog.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/json_file.h"
#include "model/model.h"

namespace lockstep {
namespace {

const ShapeCatalog& catalog() {
  static const ShapeCatalog one = ShapeCatalog::published();
  return one;
}

std::string error_of(const std::string& toml) {
  ShapeCatalog with = catalog();
  const std::size_t before = with.shapes().size();
  try {
    with.add(toml, "mine.toml");
  } catch (const Error& e) {
    EXPECT_EQ(with.shapes().size(), before);  // nothing of it stays
    return e.what();
  }
  return "accepted";
}

TEST(ShapeCatalog, HasThePublishedRows) {
  int published = 0, references = 0;
  for (const TrainingShape& shape : catalog().shapes()) {
    if (shape.source != "published") continue;
    (shape.mode == ShapeMode::reference ? references : published) += 1;
    EXPECT_GT(shape.context, 65535) << shape.id;
    EXPECT_GT(shape.accelerators, 3) << shape.id;
  }
  EXPECT_EQ(published, 13);
  EXPECT_EQ(references, 12);
  const TrainingShape& row = catalog().shape("qwen3-8b-128k");
  EXPECT_EQ(row.context, 128000);
  EXPECT_EQ(row.accelerators, 4);
  EXPECT_EQ(row.layout->cp, 4);
  EXPECT_EQ(catalog().shape("kimi-k2p5-256k").nodes(), 8);
  EXPECT_EQ(catalog().shape("glm-5p2-lora").accelerators, 0);  // not published
}

// The counts of the models' own classes in transformers, vision towers included; those whose families run here are counted from their tensors.
TEST(ShapeCatalog, DimensionsGiveThePublishedParameters) {
  const std::vector<std::pair<std::string, std::int64_t>> published = {{"kimi-k2p5", 1026879353328},
                                                                       {"qwen3-vl-8b", 8767123696},
                                                                       {"qwen3p5-35b-a3b", 35107181936},
                                                                       {"qwen3p5-397b-a17b", 396802360816},
                                                                       {"nemotron-nano-3-30b-a3b", 31577937344},
                                                                       {"nemotron-3-super-120b", 120668687360}};
  for (const auto& [id, parameters] : published) EXPECT_EQ(catalog().model(id).sizes()->parameters(), parameters) << id;
}

// Sums over the blocks of layers are the tensors' own: nothing is counted twice or left out.
TEST(ShapeCatalog, SizesAreTheManifests) {
  for (const ShapeModel& shape : catalog().models()) {
    if (shape.config.is_null() || shape.id == "kimi-k2p5" || shape.id == "qwen3-vl-8b") continue;  // with vision
    const auto model = make_model(shape.config);
    const ModelSizes& sizes = *shape.sizes();
    EXPECT_EQ(sizes.parameters(), trained_size(model->manifest())) << shape.id;
    std::int64_t layers = 0;
    for (const LayerBlock& block : sizes.blocks) layers += block.count;
    EXPECT_EQ(layers, model->facts().layers) << shape.id;
  }
}

// What the operations of a layer give, counted by hand of Qwen3 8B, GLM-5.2 and Qwen3 30B.
TEST(ShapeCatalog, WidthsAreThoseOfTheOperations) {
  const auto of = [](const char* id) -> const ModelSizes& { return *catalog().model(id).sizes(); };
  const LayerBlock& dense = of("qwen3-8b").blocks.at(0);
  EXPECT_EQ(of("qwen3-8b").blocks.size(), 1U);
  EXPECT_EQ(dense.width, 4096 + 4096 + 2 * 1024 + 4096 + 4096 + 3 * 12288 + 4096);  // norm, q, k and v, attention, o; gate, up, product, down
  EXPECT_EQ(dense.cache, 2 * 8 * 128);
  EXPECT_EQ(dense.adapted, 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 12288));
  const LayerBlock& moe = of("qwen3-30b-a3b").blocks.at(0);
  EXPECT_EQ(moe.width, 2048 + 4096 + 2 * 512 + 4096 + 2048 + 2048 + 128 + 8 * (2 * 2048 + 3 * 768));
  EXPECT_EQ(moe.adapted, 2 * (2048 + 4096) + 2 * (2048 + 512) + 128 * 3 * (2048 + 768));
  const ModelSizes& glm = of("glm-5p2");
  ASSERT_EQ(glm.blocks.size(), 3U);  // dense with an indexer, sparse without and with one
  std::int64_t indexers = 0;
  for (const LayerBlock& block : glm.blocks) {
    const bool selects = block.cache > 576;
    indexers += selects ? block.count : 0;
    EXPECT_EQ(block.cache, selects ? 576 + 128 : 576);
    EXPECT_FALSE(block.cache_by_heads);
    const std::int64_t attention = 6144 + 2048 + 64 * 256 + 576 + 64 * 576 + 64 * 512 + 64 * 256 + 6144, indexer = 32 * 128 + 128 + 32 + 2 * 2048;
    const std::int64_t experts = 3 * 2048 + 6144 + 6144 + 256 + 8 * (2 * 6144 + 3 * 2048);
    EXPECT_EQ(block.width, attention + (selects ? indexer : 0) + (block.experts > 0 ? experts : 3 * 12288 + 6144));
  }
  EXPECT_EQ(indexers, 21);
}

TEST(ShapeCatalog, ModelsGoByAnyName) {
  for (const std::string name : {"qwen3p5-35b-a3b", "Qwen/Qwen3.5-35B-A3B", "accounts/fireworks/models/qwen3p5-35b-a3b", "Qwen3.5 35B-A3B"})
    EXPECT_EQ(catalog().model(name).id, "qwen3p5-35b-a3b") << name;
  EXPECT_EQ(catalog().find_model("qwen35-35b"), nullptr);
  EXPECT_EQ(catalog().find_model(""), nullptr);
  EXPECT_EQ(catalog().accelerator("B200").id, "NVIDIA_B200_180GB");
  EXPECT_THROW(catalog().accelerator("B100"), Error);
  try {
    catalog().model("qwen3-9b");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean 'qwen3-8b'"), std::string::npos) << e.what();
  }
}

TEST(ShapeCatalog, AUsersFileAddsRows) {
  ShapeCatalog with = catalog();
  with.add(
      "[accelerator.TPU]\nmemory_gb = 96\n[model.mine]\nname = 'Mine'\n[[shape]]\nid = 'mine-4k'\nmodel = 'Mine'\nmode = 'policy'\ncontext = 4096\naccelerator "
      "= 'TPU'\naccelerators = 2\nreference = true\n",
      "mine.toml");
  EXPECT_EQ(with.shape("mine-4k-reference").mode, ShapeMode::reference);
  EXPECT_FALSE(with.fit(with.shape("mine-4k")).has_value());  // no dimensions, so no memory is said
  EXPECT_EQ(catalog().find_model("mine"), nullptr);
}

TEST(ShapeCatalog, RefusesWhatItDoesNotUnderstand) {
  const std::string row = "[[shape]]\nid = 'a-b'\nmodel = 'qwen3-8b'\nmode = 'policy'\ncontext = 4096\naccelerator = 'B200'\naccelerators = 4\n";
  EXPECT_EQ(error_of(row), "accepted");
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"[[shape]\n", "mine.toml:1:"},
      {row + "contxt = 1\n", "unknown key 'contxt'; did you mean 'context'"},
      {"[[shape]]\nid = 'A b'\nmodel = 'qwen3-8b'\nmode = 'policy'\n", "allowed are 1 to 63 of a-z, 0-9 and -"},
      {"[[shape]]\nid = 'a'\nmodel = 'qwen3-8c'\nmode = 'policy'\n", "did you mean 'qwen3-8b'"},
      {"[[shape]]\nid = 'a'\nmodel = 'qwen3-8b'\nmode = 'polcy'\n", "did you mean 'policy'"},
      {"[[shape]]\nid = 'a'\nmode = 'policy'\n", "model is missing"},
      {"[[shape]]\nid = 'a'\nmodel = 'qwen3-8b'\nmode = 'policy'\naccelerators = 4\n", "go together"},
      {row + "layout = { cp = 3 }\n", "does not divide 4 accelerators"},
      {row + "layout = { tp = 0 }\n", "tp must be an integer from 1"},
      {row + "experts = 'int4'\n", "allowed is bf16"},
      {row + row, "in the catalog already"},
      {"[[shape]]\nid = 'qwen3-8b-128k'\nmodel = 'qwen3-8b'\nmode = 'lora'\n", "in the catalog already"},
      {"[model.x]\nmodel_type = 'lama'\n", "did you mean 'llama'"},
      {"[model.x]\nmodel_type = 'llama'\nhidden_size = 64\n", "'vocab_size' is missing"},
      {"[model.x]\nmodel_type = 'llama'\nhiden_size = 64\n", "unknown key 'hiden_size'; did you mean 'hidden_size'"},
      {"[model.x]\nmodel_type = 'llama'\nhidden_size = 1979-05-27\n", "a date or a time"},
      {"[model.x]\nmodel_type = 'nemotron_h'\nhidden_size = 64\n", "num_hidden_layers is missing, which nemotron_h needs"},
      {"[model.x]\nconfig = 'qwen3-9b'\n", "did you mean 'qwen3-8b'"},
      {"[model.x]\nconfig = 'qwen3-8b'\nhidden_size = 64\n", "unknown key 'hidden_size'"},
      {"[model.x]\nconfig = 'qwen3-8b'\nmodel_type = 'qwen3'\n", "allowed is one of them"},
      {"[model.x]\nhidden_size = -1\n", "hidden_size must be an integer"},
      {"shape = 3\n", "each begins with [[shape]]"},
      {"[shapes]\n", "unknown key 'shapes'"}};
  for (const auto& [toml, words] : wrong) EXPECT_NE(error_of(toml).find(words), std::string::npos) << toml << "\n" << error_of(toml);
}

}  // namespace
}  // namespace lockstep
