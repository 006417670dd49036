// The catalog: its rows, the parameters that follow from dimensions, and what is refused of a file.
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

// The counts of the models' own classes in transformers, vision towers included.
TEST(ShapeCatalog, DimensionsGiveThePublishedParameters) {
  const std::vector<std::pair<std::string, std::int64_t>> published = {
      {"glm-5p2", 743377000704},         {"kimi-k2p5", 1026879353328},        {"llama-v3p3-70b", 70553706496}, {"qwen3-8b", 8190735360},
      {"qwen3-32b", 32762123264},        {"qwen3-30b-a3b", 30532122624},      {"qwen3-235b-a22b", 235093634560}, {"qwen3-vl-8b", 8767123696},
      {"qwen3p5-35b-a3b", 35107181936},  {"qwen3p5-397b-a17b", 396802360816}, {"minimax-m2p5", 228689748992},  {"nemotron-nano-3-30b-a3b", 31577937344},
      {"nemotron-3-super-120b", 120668687360}, {"smollm2-135m", 134515008}};
  for (const auto& [id, parameters] : published) EXPECT_EQ(catalog().model(id).sizes->parameters(), parameters) << id;
}

// Of our own families the manifest counts: the formula's dimensions give the same number, and wrong ones do not.
TEST(ShapeCatalog, DimensionsGiveTheManifestsParameters) {
  const auto model = make_model(read_json_file(LOCKSTEP_SOURCE_DIR "/models/countdown-glm/config.json"), {});
  ModelDimensions dimensions = catalog().model("countdown-glm").dimensions;
  EXPECT_EQ(model_sizes(dimensions).parameters(), model->manifest().trained_size());
  dimensions.index_layers = 3;
  EXPECT_NE(model_sizes(dimensions).parameters(), model->manifest().trained_size());
}

TEST(ShapeCatalog, ModelsGoByAnyName) {
  for (const std::string name : {"qwen3p5-35b-a3b", "Qwen/Qwen3.5-35B-A3B", "accounts/fireworks/models/qwen3p5-35b-a3b", "Qwen3.5 35B-A3B"}) EXPECT_EQ(catalog().model(name).id, "qwen3p5-35b-a3b") << name;
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
  with.add("[accelerator.TPU]\nmemory_gb = 96\n[model.mine]\nname = 'Mine'\n[[shape]]\nid = 'mine-4k'\nmodel = 'Mine'\nmode = 'policy'\ncontext = 4096\naccelerator = 'TPU'\naccelerators = 2\nreference = true\n", "mine.toml");
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
      {"[model.x]\nmodel_type = 'llama'\nhidden_size = 64\n", "num_hidden_layers is missing, which llama needs"},
      {"[model.x]\nhidden_size = -1\n", "hidden_size must be an integer"},
      {"shape = 3\n", "each begins with [[shape]]"},
      {"[shapes]\n", "unknown key 'shapes'"}};
  for (const auto& [toml, words] : wrong) EXPECT_NE(error_of(toml).find(words), std::string::npos) << toml << "\n" << error_of(toml);
}

}  // namespace
}  // namespace lockstep
