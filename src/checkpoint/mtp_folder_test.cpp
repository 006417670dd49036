// A layer of multi-token prediction in model folders: read beside the model, written again, missing, in copies that differ. No hash of the model knows it.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "base/file.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_export.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/safetensors_test_tools.h"
#include "model/blocks/mtp_layer.h"
#include "model/runtime.h"
#include "model/value_head.h"
#include "numerics/element.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

// A small folder with such a layer, as another program would have written it.
class MtpFolder : public testing::TestWithParam<std::string> {
 protected:
  using Values = std::map<std::string, std::pair<std::vector<std::int64_t>, std::vector<float>>>;

  MtpFolder() : config_(read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / GetParam() / "config.json")) {
    config_["num_nextn_predict_layers"] = 1;
    model_ = make_model(config_);
    add(model_->manifest(), masters_);
    add(model_->mtp()->manifest(), layer_);
  }
  void add(const Manifest& manifest, WeightImages& images) {
    images.resize(manifest.parameters().size());
    for (const FileTensor& file : manifest.files()) {
      NamedUniform uniform(7, file.name);
      std::vector<float> values(static_cast<std::size_t>(file.size()));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = uniform(i);
      manifest.scatter(file, values.data(), images);
      tensors_[file.name] = {file.shape, std::move(values)};
    }
  }
  fs::path write(const std::function<void(Values&)>& change = [](Values&) {}) {
    Values tensors = tensors_;
    change(tensors);
    std::vector<SafetensorsWriter::Entry> entries;
    for (const auto& [name, value] : tensors) entries.push_back({name, SafetensorsType::f32, value.first});
    std::string bytes;
    SafetensorsWriter writer([&](const void* data, std::size_t n) { bytes.append(static_cast<const char*>(data), n); }, entries);
    for (const auto& entry : writer.entries()) writer.write(tensors.at(entry.name).second);
    writer.finish();
    const fs::path path = folder_.path() / fmt::format("m{}", ++written_);
    fs::create_directories(path);
    write_file_atomic(path / "config.json", json_text(config_));
    write_file_atomic(path / "model.safetensors", bytes);
    return path;
  }
  std::string prefix() const { return model_->mtp()->prefix(); }

  TemporaryFolder folder_;
  int written_ = 0;
  Json config_;
  std::unique_ptr<Model> model_;
  WeightImages masters_, layer_;
  Values tensors_;
};

TEST_P(MtpFolder, IsReadBesideTheModelWhoseHashItDoesNotChange) {
  const auto with = ModelReader::open(write());
  ASSERT_TRUE(with->has_mtp());
  EXPECT_TRUE(with->notes().empty()) << with->notes()[0];
  EXPECT_EQ(with->masters(), masters_);
  EXPECT_EQ(with->mtp_masters(), layer_);
  EXPECT_EQ(with->mtp_sha256(), weights_sha256(model_->mtp()->manifest(), layer_));
  EXPECT_EQ(with->weights_sha256(), weights_sha256(model_->manifest(), masters_));
  Json config = config_;
  config["num_nextn_predict_layers"] = 0;
  EXPECT_EQ(with->weights_sha256(), weights_sha256(make_model(config)->manifest(), masters_));  // that of the same model without such a layer
  EXPECT_NE(with->mtp_sha256(), with->weights_sha256());
  for (const char* profile : {"cpu-f32", "cpu-bf16w", "cpu-int8w"}) {
    Runtime runtime({.threads = 2}, with->model(), profile_by_name(profile));
    const auto read = with->mtp_weight_set(runtime.backend, runtime.profile, 3);
    EXPECT_EQ(read->version, 3u);
    EXPECT_EQ(weight_images(runtime.backend, model_->mtp()->manifest(), *read, runtime.profile),
              weight_images(runtime.backend, model_->mtp()->manifest(),
                            *make_weight_set(runtime.backend, model_->mtp()->manifest(), layer_, runtime.profile, 3), runtime.profile))
        << profile;
  }
  const ModelFolderInfo info = model_folder_info(folder_.path() / "m1");
  EXPECT_EQ(info.draft_sha256, with->mtp_sha256());
  EXPECT_EQ(info.parameters_total, trained_size(model_->manifest()));
  EXPECT_EQ(to_json(info).at("multi_token_prediction").at("parameters"), trained_size(model_->mtp()->manifest()));
}

TEST_P(MtpFolder, IsWrittenAgain) {
  const auto reader = ModelReader::open(write());
  const fs::path trained = folder_.path() / "trained", converted = folder_.path() / "converted", bare = folder_.path() / "bare";
  SaveOptions options{.dtype = DType::f32, .mtp_from = reader};
  WeightImages moved = masters_;
  for (std::vector<float>& image : moved)
    for (float& x : image) x *= 0.5f;
  save_model_folder(trained, *model_, moved, options);
  EXPECT_EQ(ModelReader::open(trained)->masters(), moved);
  EXPECT_EQ(ModelReader::open(trained)->mtp_masters(), layer_);
  export_model_folder(converted, *reader, {.dtype = DType::bf16}, Overwrite::no);
  const auto in_bf16 = ModelReader::open(converted);
  EXPECT_EQ(in_bf16->file_dtype(), DType::bf16);
  ASSERT_TRUE(in_bf16->has_mtp());
  const WeightImages rounded = in_bf16->mtp_masters();
  for (std::size_t i = 0; i < layer_.size(); ++i)
    for (std::size_t j = 0; j < layer_[i].size(); ++j) {
      const bool trained_one = model_->mtp()->manifest().parameters()[i].trained;
      ASSERT_EQ(rounded[i][j], trained_one ? widen(round_to_bf16(layer_[i][j])) : layer_[i][j]);
    }
  save_model_folder(bare, *model_, masters_, {.dtype = DType::f32});
  EXPECT_FALSE(ModelReader::open(bare)->has_mtp());
  EXPECT_EQ(ModelReader::open(bare)->notes().size(), 1u);
}

TEST_P(MtpFolder, ThatLacksATensorIsANoteAndNothingElse) {
  const std::string join = prefix() + "eh_proj.weight";
  const auto reader = ModelReader::open(write([&](Values& t) { t.erase(join); }));
  EXPECT_FALSE(reader->has_mtp());
  EXPECT_EQ(reader->masters(), masters_);
  ASSERT_EQ(reader->notes().size(), 2u);
  EXPECT_NE(reader->notes()[0].find("1 of "), std::string::npos) << reader->notes()[0];
  EXPECT_NE(reader->notes()[0].find(join), std::string::npos) << reader->notes()[0];
  EXPECT_NE(reader->notes()[0].find("nothing is drafted with it"), std::string::npos) << reader->notes()[0];
  EXPECT_NE(reader->notes()[1].find("were passed over"), std::string::npos) << reader->notes()[1];
  EXPECT_TRUE(model_folder_info(folder_.path() / "m1").draft_sha256.empty());
  EXPECT_FALSE(to_json(model_folder_info(folder_.path() / "m1")).contains("multi_token_prediction"));
}

TEST_P(MtpFolder, MayHoldCopiesOfEmbeddingAndHeadThatAreEqual) {
  const std::string table = prefix() + "embed_tokens.weight", head = prefix() + "shared_head.head.weight";
  const auto copies = [&](Values& t) {
    t[table] = t.at("model.embed_tokens.weight");
    t[head] = t.at("lm_head.weight");
  };
  const auto equal = ModelReader::open(write(copies));
  EXPECT_TRUE(equal->notes().empty());
  EXPECT_EQ(equal->mtp_masters(), layer_);
  for (const std::string& name : {table, head}) {
    const auto other = ModelReader::open(write([&](Values& t) {
      copies(t);
      t.at(name).second.back() += 1;
    }));
    EXPECT_EQ(other->masters(), masters_);
    expect_error(ErrorCode::corrupt_file, {name, "shares the embedding and the head"}, [&] { other->mtp_masters(); });
  }
}

TEST_P(MtpFolder, IsNotThereInAModelWithAValueHead) { EXPECT_EQ(make_model(value_config(config_))->mtp(), nullptr); }

INSTANTIATE_TEST_SUITE_P(Families, MtpFolder, testing::Values("glm_moe_dsa/sharing", "deepseek_v3/groups", "deepseek_v32/indexed", "kimi_k2/small"),
                         [](const auto& info) { return info.param.substr(0, info.param.find('/')); });

}  // namespace
}  // namespace lockstep
