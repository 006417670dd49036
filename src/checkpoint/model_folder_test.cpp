#include "checkpoint/model_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/file.h"
#include "checkpoint/json_file.h"
#include "checkpoint/safetensors_test_tools.h"
#include "numerics/element.h"
#include "numerics/profile.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

struct Values {
  SafetensorsType type = SafetensorsType::f32;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Values>;

class ModelFolderTest : public testing::Test {
 protected:
  ModelFolderTest() : model_(make_model(read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/glm_moe_dsa/sharing/config.json"))) {
    masters_.resize(model_->manifest().parameters().size());
    for (const FileTensor& file : model_->manifest().files()) {
      NamedUniform uniform(7, file.name);
      Values v{SafetensorsType::f32, file.shape, std::vector<float>(static_cast<std::size_t>(file.size()))};
      for (std::size_t i = 0; i < v.values.size(); ++i) v.values[i] = uniform(i);
      model_->manifest().scatter(file, v.values.data(), masters_);
      tensors_[file.name] = std::move(v);
    }
  }

  // The folder as another program would have written it, after `change`.
  fs::path write(const std::function<void(Tensors&)>& change) {
    Tensors tensors = tensors_;
    change(tensors);
    const fs::path path = folder_.path() / "m";
    fs::create_directories(path);
    write_file_atomic(path / "config.json", json_text(model_->config()));
    write_file_atomic(path / "model.safetensors", bytes_of(tensors));
    return path;
  }
  static std::string bytes_of(const Tensors& tensors) {
    std::vector<SafetensorsWriter::Entry> entries;
    for (const auto& [name, v] : tensors) entries.push_back({name, v.type, v.shape});
    std::string bytes;
    SafetensorsWriter writer([&](const void* data, std::size_t n) { bytes.append(static_cast<const char*>(data), n); }, entries);
    for (const auto& entry : writer.entries()) writer.write(tensors.at(entry.name).values);
    writer.finish();
    return bytes;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Model> model_;
  WeightImages masters_;
  Tensors tensors_;
};

TEST_F(ModelFolderTest, Fp32RoundTripIsExact) {
  const fs::path path = folder_.path() / "out";
  save_model_folder(path, *model_, masters_, {.dtype = DType::f32});
  const LoadedModel loaded = load_model_folder(path);
  EXPECT_EQ(loaded.masters, masters_);
  EXPECT_EQ(loaded.file_dtype, DType::f32);
  EXPECT_EQ(loaded.model->config().at("dtype"), "float32");
  EXPECT_TRUE(loaded.notes.empty());
  EXPECT_EQ(weights_sha256(loaded.model->manifest(), loaded.masters), weights_sha256(model_->manifest(), masters_));
  EXPECT_FALSE(fs::exists(path / "generation_config.json"));  // no eos in this config
}

TEST_F(ModelFolderTest, Bf16HoldsTheRoundedMastersAndKeepsFp32Tensors) {
  const fs::path path = folder_.path() / "out";
  save_model_folder(path, *model_, masters_, {.dtype = DType::bf16});
  const LoadedModel loaded = load_model_folder(path);
  EXPECT_EQ(loaded.file_dtype, DType::bf16);
  EXPECT_EQ(loaded.model->config().at("dtype"), "bfloat16");
  for (std::size_t p = 0; p < masters_.size(); ++p)
    for (std::size_t i = 0; i < masters_[p].size(); ++i) {
      const float want = model_->manifest().parameters()[p].trained ? widen(round_to_bf16(masters_[p][i])) : masters_[p][i];
      ASSERT_EQ(float_bits(loaded.masters[p][i]), float_bits(want)) << model_->manifest().parameters()[p].name << " " << i;
    }
  // Saved again, the bytes are the same: bf16 is a fixed point.
  const fs::path again = folder_.path() / "again";
  save_model_folder(again, *loaded.model, loaded.masters, {.dtype = DType::bf16});
  for (const char* name : {"model.safetensors", "config.json"}) EXPECT_EQ(read_file(path / name, 1 << 26), read_file(again / name, 1 << 26)) << name;
}

// Some files of tied models hold the table a second time, as the head.
TEST_F(ModelFolderTest, ATiedTableMayStandTwiceButNotDiffer) {
  Json config = read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/llama/scaled/config.json");
  model_ = make_model(config);
  masters_.assign(model_->manifest().parameters().size(), {});
  tensors_.clear();
  for (const FileTensor& file : model_->manifest().files()) {
    Values v{SafetensorsType::f32, file.shape, std::vector<float>(static_cast<std::size_t>(file.size()), 0.5f)};
    v.values[0] = 0.25f;
    model_->manifest().scatter(file, v.values.data(), masters_);
    tensors_[file.name] = std::move(v);
  }
  EXPECT_FALSE(tensors_.contains("lm_head.weight"));
  EXPECT_EQ(load_model_folder(write([](Tensors&) {})).masters, masters_);
  const auto twice = [](Tensors& t) { t["lm_head.weight"] = t.at("model.embed_tokens.weight"); };
  const LoadedModel loaded = load_model_folder(write(twice));
  EXPECT_EQ(loaded.masters, masters_);
  expect_error(ErrorCode::corrupt_file, {"tie_word_embeddings", "lm_head.weight"}, [&] {
    load_model_folder(write([&](Tensors& t) {
      twice(t);
      t.at("lm_head.weight").values.back() += 1.0f;
    }));
  });
  expect_error(ErrorCode::corrupt_file, {"lm_head.weight", "shape"}, [&] {
    load_model_folder(write([&](Tensors& t) {
      twice(t);
      t.at("lm_head.weight").shape = {t.at("lm_head.weight").shape[1], t.at("lm_head.weight").shape[0]};
    }));
  });
  const fs::path saved = folder_.path() / "out";
  save_model_folder(saved, *loaded.model, loaded.masters, {.dtype = DType::f32});
  EXPECT_EQ(SafetensorsFile::open(saved / "model.safetensors").tensors().size(), tensors_.size());
  EXPECT_EQ(load_model_folder(saved).masters, masters_);
  // Untied, the head is missing.
  config["tie_word_embeddings"] = false;
  model_ = make_model(config);
  expect_error(ErrorCode::corrupt_file, {"lacks 1 of", "lm_head.weight"}, [&] { load_model_folder(write([](Tensors&) {})); });
}

TEST_F(ModelFolderTest, ConfigKeepsWhatNobodyAskedFor) {
  Json config = model_->config();
  config["house"] = {{"unknown", {1, 2.5, "x"}}};
  config["torch_dtype"] = "float16";
  config["eos_token_id"] = {3, 5};
  config["pad_token_id"] = 4;
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  const std::unique_ptr<Model> model = make_model(config);
  const fs::path path = folder_.path() / "out";
  save_model_folder(path, *model, masters_, {.dtype = DType::f32});
  Json want = config;
  want["dtype"] = want["torch_dtype"] = "float32";
  want.erase("quantization_config");  // it spoke of the folder that was read
  EXPECT_EQ(read_json_file(path / "config.json"), want);
  EXPECT_EQ(read_json_file(path / "generation_config.json"), (Json{{"_from_model_config", true}, {"eos_token_id", {3, 5}}, {"pad_token_id", 4}}));
}

TEST_F(ModelFolderTest, ShardsWithAnIndex) {
  const fs::path path = folder_.path() / "out";
  save_model_folder(path, *model_, masters_, {.dtype = DType::f32, .max_shard_bytes = 60'000});
  EXPECT_FALSE(fs::exists(path / "model.safetensors"));
  const Json index = read_json_file(path / "model.safetensors.index.json");
  std::uint64_t total = 0;
  std::set<std::string> shards;
  for (const auto& [name, file] : index.at("weight_map").items()) {
    shards.insert(file.get<std::string>());
    total += tensors_.at(name).values.size() * 4;
  }
  EXPECT_EQ(index.at("weight_map").size(), tensors_.size());
  EXPECT_EQ(index.at("metadata").at("total_size"), total);
  EXPECT_GT(shards.size(), 3u);
  EXPECT_TRUE(shards.contains(fmt::format("model-00001-of-{:05}.safetensors", shards.size())));
  EXPECT_EQ(load_model_folder(path).masters, masters_);

  const std::string moved = "model.embed_tokens.weight";  // not alone in its shard
  const auto with_index = [&](const std::function<void(Json&)>& change) {
    Json changed = index;
    change(changed);
    write_file_atomic(path / "model.safetensors.index.json", json_text(changed));
    return [&] { load_model_folder(path); };
  };
  expect_error(ErrorCode::corrupt_file, {moved, "does not place"}, with_index([&](Json& j) { j["weight_map"].erase(moved); }));
  expect_error(ErrorCode::corrupt_file, {"'not.there'", "does not hold"}, with_index([&](Json& j) { j["weight_map"]["not.there"] = *shards.begin(); }));
  expect_error(ErrorCode::corrupt_file, {moved, "../x"}, with_index([&](Json& j) { j["weight_map"][moved] = "../x"; }));
  expect_error(ErrorCode::corrupt_file, {moved, "number"}, with_index([&](Json& j) { j["weight_map"][moved] = 3; }));
  expect_error(ErrorCode::corrupt_file, {"weight_map"}, with_index([&](Json& j) { j.erase("weight_map"); }));
  expect_error(ErrorCode::not_found, {"model-9.safetensors"}, with_index([&](Json& j) { j["weight_map"]["a"] = "model-9.safetensors"; }));
}

TEST_F(ModelFolderTest, FusedExpertsAreRead) {
  const fs::path path = write([&](Tensors& tensors) {
    for (int layer = 3; layer < 11; ++layer) {
      const std::string experts = fmt::format("model.layers.{}.mlp.experts", layer);
      Values gate_up{SafetensorsType::f32, {12, 14, 48}, {}}, down{SafetensorsType::f32, {12, 48, 7}, {}};
      for (int e = 0; e < 12; ++e)
        for (const char* part : {"gate", "up", "down"}) {
          const auto node = tensors.extract(fmt::format("{}.{}.{}_proj.weight", experts, e, part));
          ASSERT_TRUE(node);
          std::vector<float>& to = (part[0] == 'd' ? down : gate_up).values;
          to.insert(to.end(), node.mapped().values.begin(), node.mapped().values.end());
        }
      tensors[experts + ".gate_up_proj"] = gate_up;
      tensors[experts + ".down_proj"] = down;
    }
  });
  EXPECT_EQ(load_model_folder(path).masters, masters_);
  expect_error(ErrorCode::corrupt_file, {"experts.gate_up_proj", "[12, 48, 14]", "[12, 14, 48]"}, [&] {
    load_model_folder(write([](Tensors& tensors) {
      tensors.erase("model.layers.3.mlp.experts.0.gate_proj.weight");
      tensors["model.layers.3.mlp.experts.gate_up_proj"] = {SafetensorsType::bf16, {12, 48, 14}, std::vector<float>(12 * 48 * 14)};
    }));
  });
}

TEST_F(ModelFolderTest, ExpertsThatDoNotAddUpAreCounted) {
  const std::string experts = "model.layers.3.mlp.experts";
  const auto refused = [&](const std::vector<std::string>& parts, const std::function<void(Tensors&)>& change) {
    expect_error(ErrorCode::corrupt_file, parts, [&] { load_model_folder(write(change)); });
  };
  refused({"/m' lacks 3 of ", "'model.layers.3.mlp.experts.11.gate_proj.weight'", "by config.json a layer has 12 experts"}, [&](Tensors& tensors) {
    for (const char* part : {"gate", "up", "down"}) tensors.erase(fmt::format("{}.11.{}_proj.weight", experts, part));
  });
  refused(
      {"/m' has 1 tensors that the model does not know: 'model.layers.3.mlp.experts.12.gate_proj.weight'; by config.json a layer has 12 experts, from 0 on"},
      [&](Tensors& tensors) { tensors[experts + ".12.gate_proj.weight"] = tensors.at(experts + ".11.gate_proj.weight"); });
  refused({"tensor 'model.layers.3.mlp.experts.down_proj' has the shape [11, 48, 7], config.json says [12, 48, 7]"}, [&](Tensors& tensors) {
    for (int e = 0; e < 12; ++e) tensors.erase(fmt::format("{}.{}.down_proj.weight", experts, e));
    tensors[experts + ".down_proj"] = {SafetensorsType::f32, {11, 48, 7}, std::vector<float>(11 * 48 * 7)};
  });
  // A misspelt tensor of an expert is told as such.
  refused({"lacks 1 of", "did you mean 'model.layers.3.mlp.experts.5.up_prj.weight'?"}, [&](Tensors& tensors) {
    tensors[experts + ".5.up_prj.weight"] = tensors.at(experts + ".5.up_proj.weight");
    tensors.erase(experts + ".5.up_proj.weight");
  });
}

TEST_F(ModelFolderTest, LayersBeyondTheModelArePassedOver) {
  const fs::path path = write([](Tensors& tensors) {
    tensors["model.layers.11.enorm.weight"] = {SafetensorsType::f32, {48}, std::vector<float>(48)};
    tensors["model.layers.11.hnorm.weight"] = {SafetensorsType::f32, {48}, std::vector<float>(48)};
  });
  const LoadedModel loaded = load_model_folder(path);
  EXPECT_EQ(loaded.masters, masters_);
  ASSERT_EQ(loaded.notes.size(), 1u);
  EXPECT_EQ(loaded.notes[0], "2 tensors of model.layers.11 were passed over: the model has 11 layers (multi-token prediction)");
}

TEST_F(ModelFolderTest, AnAuxiliaryLossThatIsNotMadeIsSaid) {
  const fs::path path = write([](Tensors&) {});
  Json config = model_->config();
  for (const auto& [value, notes] : {std::pair(Json(0.25), 1u), {Json(0), 0u}, {Json(nullptr), 0u}}) {
    config["router_aux_loss_coef"] = value;
    write_file_atomic(path / "config.json", json_text(config));
    const LoadedModel loaded = load_model_folder(path);
    ASSERT_EQ(loaded.notes.size(), notes) << value;
    if (notes > 0) {
      EXPECT_EQ(loaded.notes[0], "'router_aux_loss_coef' is 0.25 in config.json: it is kept, and training adds no such loss");
    }
  }
}

TEST_F(ModelFolderTest, ModulesOfMultiTokenPredictionThatAreNotComputedAreSaid) {
  const Json config = read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/minimax_m2/norms/config.json");
  const std::unique_ptr<Model> model = make_model(config);
  WeightImages masters(model->manifest().parameters().size());
  for (const FileTensor& file : model->manifest().files())
    model->manifest().scatter(file, std::vector<float>(static_cast<std::size_t>(file.size())).data(), masters);
  const fs::path path = folder_.path() / "out";
  save_model_folder(path, *model, masters, {.dtype = DType::f32});
  for (const auto& [value, notes] : {std::pair(Json(true), 1u), {Json(false), 0u}, {Json(nullptr), 0u}}) {
    Json changed = config;
    changed["router_aux_loss_coef"] = 0;
    changed["use_mtp"] = value;
    changed["num_mtp_modules"] = 3;
    write_file_atomic(path / "config.json", json_text(changed));
    const LoadedModel loaded = load_model_folder(path);
    ASSERT_EQ(loaded.notes.size(), notes) << value;
    if (notes > 0) {
      EXPECT_EQ(loaded.notes[0], "'use_mtp' is true in config.json: it is kept, and modules for multi-token prediction are not computed");
    }
  }
}

// Of few bits or not: what a profile has a place for, whatever the values.
TEST_F(ModelFolderTest, InfoSaysUnderWhichProfilesNumbersAreExact) {
  using Names = std::vector<std::string>;
  const auto under = [](const fs::path& path) {
    std::map<std::string, Names> found;
    const Json exact = to_json(model_folder_info(path)).at("exact_under");
    for (const auto& [type, names] : exact.items()) found[type] = names.get<Names>();
    return found;
  };
  const fs::path path = folder_.path() / "out";
  save_model_folder(path, *model_, masters_, {.dtype = DType::f32});
  EXPECT_EQ(under(path), (std::map<std::string, Names>{{"F32", {"cpu-f32"}}}));
  save_model_folder(path, *model_, masters_, {.dtype = DType::bf16, .overwrite = true});
  std::map<std::string, Names> bf16 = under(path);
  EXPECT_EQ(bf16["BF16"], (Names{"cpu-f32", "cpu-bf16w"}));
  // What is no weight that trains, the router's correction, is F32 in it and fp32 under every profile.
  for (const Profile& profile : profiles())
    if (!profile.study && model_->profile_refusal(profile).empty()) {
      EXPECT_NE(std::find(bf16["F32"].begin(), bf16["F32"].end(), profile.name), bf16["F32"].end()) << profile.name;
    }
}

TEST_F(ModelFolderTest, LyingFoldersAreOneClearError) {
  const auto load = [&](const std::function<void(Tensors&)>& change) { return [this, change] { load_model_folder(write(change)); }; };
  const std::string norm = "model.norm.weight";
  expect_error(ErrorCode::corrupt_file, {"lacks 1 of", norm, "did you mean 'model.morn.weight'", "while reading the model"}, load([&](Tensors& t) {
                 t["model.morn.weight"] = t[norm];
                 t.erase(norm);
               }));
  expect_error(ErrorCode::corrupt_file, {"lacks 5 of", ", ..."}, load([&](Tensors& t) {
                 for (int i = 0; i < 5; ++i) t.erase(fmt::format("model.layers.{}.input_layernorm.weight", i));
               }));
  expect_error(ErrorCode::corrupt_file, {"1 tensors that the model does not know", "model.norms.weight", "did you mean 'model.norm.weight'"},
               load([&](Tensors& t) { t["model.norms.weight"] = t[norm]; }));
  expect_error(ErrorCode::corrupt_file, {norm, "[47]", "[48]"}, load([&](Tensors& t) { t[norm] = {SafetensorsType::f32, {47}, std::vector<float>(47)}; }));
  expect_error(ErrorCode::corrupt_file, {norm, "[1, 48]", "[48]"}, load([&](Tensors& t) { t[norm].shape = {1, 48}; }));
  expect_error(ErrorCode::corrupt_file, {norm, "element 5", "nan"}, load([&](Tensors& t) { t[norm].values[5] = NAN; }));
  expect_error(ErrorCode::corrupt_file, {norm, "element 6", "inf"}, load([&](Tensors& t) { t[norm].values[6] = INFINITY; }));

  const fs::path path = write([](Tensors&) {});
  EXPECT_EQ(load_model_folder(path).masters, masters_);
  const std::string whole = read_file(path / "model.safetensors", 1 << 26);
  write_file_atomic(path / "model.safetensors", whole.substr(0, whole.size() - 1));
  expect_error(ErrorCode::corrupt_file, {"truncated", "model.safetensors"}, [&] { load_model_folder(path); });
  write_file_atomic(path / "config.json", "{\"model_type\": ");
  expect_error(ErrorCode::corrupt_file, {"config.json", "not valid JSON"}, [&] { load_model_folder(path); });
  write_file_atomic(path / "config.json", std::string(1000, '['));
  expect_error(ErrorCode::corrupt_file, {"config.json", "64 levels"}, [&] { load_model_folder(path); });
  write_file_atomic(path / "config.json", "{\"a\": 1e999}");
  expect_error(ErrorCode::corrupt_file, {"config.json", "out of range"}, [&] { load_model_folder(path); });
  write_file_atomic(path / "config.json", "[]");
  expect_error(ErrorCode::corrupt_file, {"config.json", "array", "object"}, [&] { load_model_folder(path); });
  write_file_atomic(path / "config.json", "{\"model_type\": \"glm_moe_dsb\"}");
  expect_error(ErrorCode::unsupported, {"glm_moe_dsb", "did you mean"}, [&] { load_model_folder(path); });
  fs::remove(path / "config.json");
  expect_error(ErrorCode::not_found, {"holds no config.json"}, [&] { load_model_folder(path); });
  expect_error(ErrorCode::not_found, {"there is no folder"}, [&] { load_model_folder(path / "none"); });
}

TEST_F(ModelFolderTest, SavingIsWholeOrNothing) {
  const fs::path path = folder_.path() / "out";
  save_model_folder(path, *model_, masters_, {.dtype = DType::f32});
  expect_error(ErrorCode::already_exists, {"out"}, [&] { save_model_folder(path, *model_, masters_, {}); });
  WeightImages wrong = masters_;
  wrong[0][3] = NAN;
  expect_error(ErrorCode::numeric, {"element 3", "model.embed_tokens.weight"},
               [&] { save_model_folder(path, *model_, wrong, {.dtype = DType::f32, .overwrite = true}); });
  wrong[0][3] = 3.4e38f;  // finite, and infinite in bf16
  expect_error(ErrorCode::numeric, {"BF16"}, [&] { save_model_folder(path, *model_, wrong, {.overwrite = true}); });
  EXPECT_EQ(load_model_folder(path).masters, masters_);
  EXPECT_FALSE(fs::exists(folder_.path() / "out.lockstep.partial"));
  wrong[0][3] = 2;
  save_model_folder(path, *model_, wrong, {.dtype = DType::f32, .overwrite = true});
  EXPECT_EQ(load_model_folder(path).masters, wrong);
}

TEST_F(ModelFolderTest, TokenizerFilesComeAlong) {
  const fs::path from = folder_.path() / "from", path = folder_.path() / "out";
  fs::create_directories(from);
  expect_error(ErrorCode::not_found, {"tokenizer.json"}, [&] { save_model_folder(path, *model_, masters_, {.tokenizer_files_from = from}); });
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "notes.txt"})
    write_file_atomic(from / name, std::string("{\"of\": \"") + name + "\"}");
  save_model_folder(path, *model_, masters_, {.tokenizer_files_from = from});
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"})
    EXPECT_EQ(read_file(path / name, 1000), read_file(from / name, 1000)) << name;
  EXPECT_FALSE(fs::exists(path / "notes.txt"));
}

TEST_F(ModelFolderTest, Info) {
  const fs::path path = folder_.path() / "out";
  save_model_folder(path, *model_, masters_, {});
  const ModelFolderInfo info = model_folder_info(path);
  EXPECT_EQ(info.family, "glm_moe_dsa");
  EXPECT_EQ(info.dtype, "bf16");
  EXPECT_EQ(info.layers, 11);
  EXPECT_EQ(info.vocabulary, 101);
  EXPECT_EQ(info.context, 512);
  EXPECT_EQ(info.tensors, static_cast<std::int64_t>(tensors_.size()));
  std::int64_t total = 0;
  for (const auto& [name, v] : tensors_)
    if (!name.ends_with("e_score_correction_bias")) total += static_cast<std::int64_t>(v.values.size());
  EXPECT_EQ(info.parameters_total, total);
  EXPECT_LT(info.parameters_active, total);
  const LoadedModel loaded = load_model_folder(path);
  EXPECT_EQ(info.weights_sha256, weights_sha256(loaded.model->manifest(), loaded.masters));
  // Per token: 11 layers of a latent 24 and rope 8, and 5 index keys of 16.
  const std::int64_t values = 11 * (24 + 8) + 5 * 16;
  EXPECT_EQ(info.cache_bytes_a_token[0], (std::pair<std::string, std::int64_t>{"cpu-f32", 4 * values}));
  std::size_t published = 0;
  for (const Profile& profile : profiles()) published += !profile.study && !profile.expanded_latents;  // it has an indexer
  ASSERT_EQ(info.cache_bytes_a_token.size(), published);
  for (std::size_t i = 1; i < published; ++i) EXPECT_EQ(info.cache_bytes_a_token[i].second, 2 * values) << info.cache_bytes_a_token[i].first;
  EXPECT_EQ(to_json(info).at("parameters").at("total"), total);
}

}  // namespace
}  // namespace lockstep
