// Reading by tensor: the compute copies have the bits of those made of fp32 images of all, under every profile and on every backend, and little
// is in memory beside them.
#include "checkpoint/model_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/file.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_export.h"
#include "checkpoint/reading_memory.h"
#include "checkpoint/safetensors_test_tools.h"
#include "model/low_bit_weights.h"
#include "model/runtime.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

// A latent attention (whose kv_b is cut in two, one half transposed) beside experts; and a tied table.
constexpr const char* kConfigs[] = {"glm_moe_dsa/sharing", "llama/scaled"};

std::unique_ptr<Model> golden_model(const std::string& name) {
  return make_model(read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / name / "config.json"));
}

std::vector<std::vector<std::uint8_t>> bytes_of(Backend& backend, const WeightSet& weights) {
  std::vector<std::vector<std::uint8_t>> bytes;
  for (const Buffer& buffer : weights.parameters) {
    if (buffer.view().dtype == DType::u8) {
      bytes.push_back(backend.stream().read_bytes(buffer.view()).get());
      continue;
    }
    const std::vector<float> values = backend.stream().read(buffer.view()).get();
    const auto* begin = reinterpret_cast<const std::uint8_t*>(values.data());
    bytes.emplace_back(begin, begin + values.size() * sizeof(float));
  }
  return bytes;
}

class ModelReaderTest : public testing::Test {
 protected:
  fs::path write(const Model& model) {
    const fs::path path = folder_.path() / fmt::format("m{}", ++written_);
    save_model_folder(path, model, initial_weights(model.manifest(), 3, 0.1), {.dtype = DType::f32});
    return path;
  }
  TemporaryFolder folder_;
  int written_ = 0;
};

TEST_F(ModelReaderTest, ComputeCopiesAreThoseOfTheImages) {
  // Of gpt_oss: all experts in one tensor, transposed, gate and up in turn, with a bias each.
  for (const char* name : {kConfigs[0], kConfigs[1], "gpt_oss/window"}) {
    const std::shared_ptr<const Model> model = golden_model(name);
    const auto reader = ModelReader::open(write(*model));
    const WeightImages masters = reader->masters();
    for (const Profile& profile : profiles()) {
      if (profile.weight_bits & kLowBitExperts && model->facts().expert_count == 0) continue;
      if (!model->profile_refusal(profile).empty()) continue;
      for (const BackendOptions& options : {BackendOptions{.threads = 3}, BackendOptions{.kind = BackendKind::deferred, .threads = 2}}) {
        Runtime runtime(options, reader->model(), profile);
        const auto read = reader->weight_set(runtime.backend, profile, 4);
        const auto made = make_weight_set(runtime.backend, model->manifest(), masters, profile, 4);
        EXPECT_EQ(read->version, 4u);
        EXPECT_EQ(bytes_of(runtime.backend, *read), bytes_of(runtime.backend, *made)) << name << " under " << profile.name;
        for (std::size_t i = 0; i < read->parameters.size(); ++i) {
          const View &a = read->parameters[i].view(), &b = made->parameters[i].view();
          EXPECT_TRUE(a.rows == b.rows && a.cols == b.cols && a.dtype == b.dtype) << model->manifest().parameters()[i].name;
        }
      }
    }
    EXPECT_EQ(reader->weights_sha256(), weights_sha256(model->manifest(), masters));
  }
}

// A folder of a model with long matrices is cut into several parts.
TEST_F(ModelReaderTest, LargeTensorsComeInParts) {
  Json config = read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/llama/scaled/config.json");
  config["vocab_size"] = 9001;
  const std::shared_ptr<const Model> model = make_model(config);
  const fs::path path = write(*model);
  const auto reader = ModelReader::open(path);
  ASSERT_GT(9001 * model->facts().hidden, 1 << 18);
  for (const char* name : {"cpu-bf16w", "cpu-fp8-base", "cpu-int4-base", "cpu-int8w"}) {
    const Profile& profile = profile_by_name(name);
    Runtime runtime(BackendOptions{.threads = 2}, reader->model(), profile);
    EXPECT_EQ(bytes_of(runtime.backend, *reader->weight_set(runtime.backend, profile, 0)),
              bytes_of(runtime.backend, *make_weight_set(runtime.backend, model->manifest(), reader->masters(), profile, 0)))
        << name;
  }
}

// Experts whose files are transposed are read some inputs at a time.
TEST_F(ModelReaderTest, TransposedMatricesComeSomeInputsAtATime) {
  Json config = read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/gpt_oss/window/config.json");
  config["hidden_size"] = 640;
  config["intermediate_size"] = 512;
  config["num_hidden_layers"] = 1;
  config["layer_types"] = {"full_attention"};
  config["num_local_experts"] = 3;
  const std::shared_ptr<const Model> model = make_model(config);
  const auto reader = ModelReader::open(write(*model));
  ASSERT_GT(640, rows_at_once(2 * 512));
  const WeightImages masters = reader->masters();
  for (const char* name : {"cpu-f32", "cpu-bf16w", "cpu-fp8-base", "cpu-int8w"}) {
    const Profile& profile = profile_by_name(name);
    if (!model->profile_refusal(profile).empty()) continue;
    Runtime runtime(BackendOptions{.threads = 2}, reader->model(), profile);
    const auto read = bytes_of(runtime.backend, *reader->weight_set(runtime.backend, profile, 0));
    EXPECT_TRUE(read == bytes_of(runtime.backend, *make_weight_set(runtime.backend, model->manifest(), masters, profile, 0))) << name;
    EXPECT_FALSE(read ==
                 bytes_of(runtime.backend, *make_weight_set(runtime.backend, model->manifest(), initial_weights(model->manifest(), 4, 0.1), profile, 0)));
  }
}

// What a profile of int4 computes with, written and read: the same bytes in memory and in the file again; of a latent attention too, whose cut
// matrices no folder packs.
TEST_F(ModelReaderTest, PackedFoldersAreFixedPoints) {
  for (const char* config : kConfigs)
    for (const char* name : {"cpu-int4-base", "cpu-int4-experts", "cpu-int4-qat"}) {
      const std::shared_ptr<const Model> model = golden_model(config);
      const Profile& profile = profile_by_name(name);
      const auto reader = ModelReader::open(write(*model));
      const fs::path packed = folder_.path() / fmt::format("packed{}", written_), again = folder_.path() / fmt::format("again{}", written_);
      if (profile.weight_bits & kLowBitExperts && model->facts().expert_count == 0) {
        expect_error(ErrorCode::unsupported, {"the model has none"}, [&] { export_model_folder(packed, *reader, {.low_bit = &profile}, Overwrite::no); });
        continue;
      }
      export_model_folder(packed, *reader, {.low_bit = &profile}, Overwrite::no);
      const auto of_packed = ModelReader::open(packed);
      EXPECT_TRUE(std::any_of(of_packed->tensors().begin(), of_packed->tensors().end(), [](const StoredTensor& t) { return t.holds_int4(); }));
      Runtime runtime(BackendOptions{.threads = 2}, reader->model(), profile);
      EXPECT_EQ(bytes_of(runtime.backend, *of_packed->weight_set(runtime.backend, profile, 0)),
                bytes_of(runtime.backend, *reader->weight_set(runtime.backend, profile, 0)))
          << config << " under " << name;
      export_model_folder(again, *of_packed, {.low_bit = &profile}, Overwrite::no);
      for (const char* file : {"model.safetensors", "config.json"}) EXPECT_EQ(read_file(packed / file, 1 << 26), read_file(again / file, 1 << 26)) << file;
      // What trains is quantised from the decoded numbers: to the same, and of other folders it is not said beforehand.
      EXPECT_EQ(of_packed->rounded_again(profile).size(), profile.trains_all_weights() ? 1u : 0u);
      const Profile& plain = profile_by_name("cpu-bf16w");
      ASSERT_EQ(of_packed->rounded_again(plain).size(), 1u);
      EXPECT_NE(of_packed->rounded_again(plain)[0].find("INT4, groups of 32 are rounded again under cpu-bf16w"), std::string::npos);
    }
  // The experts of gpt_oss are no matrices of their own: nothing of its folder would be packed.
  const Profile& experts = profile_by_name("cpu-int4-experts");
  const auto fused = ModelReader::open(write(*golden_model("gpt_oss/window")));
  expect_error(ErrorCode::unsupported, {"'cpu-int4-experts'", "no tensor of this model can be packed"},
               [&] { export_model_folder(folder_.path() / "fused", *fused, {.low_bit = &experts}, Overwrite::no); });
  EXPECT_FALSE(fs::exists(folder_.path() / "fused"));
  const Profile& int8 = profile_by_name("cpu-int8w");
  const auto reader = ModelReader::open(write(*golden_model(kConfigs[0])));
  expect_error(ErrorCode::unsupported, {"'cpu-int8w'", "cpu-int4-base", "cpu-fp8-base"},
               [&] { export_model_folder(folder_.path() / "int8", *reader, {.low_bit = &int8}, Overwrite::no); });
}

// The same in 8 bits: what the forward computes with, in E4M3 with a scale a block or a group of 32, and back.
TEST_F(ModelReaderTest, FoldersInE4m3HaveTheNumbersOfTheForward) {
  for (const char* config : kConfigs)
    for (const char* name : {"cpu-fp8", "cpu-mxfp8", "cpu-mxfp8-experts", "cpu-fp8-base", "cpu-fp8-experts", "cpu-mxfp8-base", "cpu-mxfp8-experts-base"}) {
      const std::shared_ptr<const Model> model = golden_model(config);
      const Profile& profile = profile_by_name(name);
      if (profile.weight_bits & kLowBitExperts && model->facts().expert_count == 0) continue;
      const auto reader = ModelReader::open(write(*model));
      const fs::path packed = folder_.path() / fmt::format("e4m3{}", written_), again = folder_.path() / fmt::format("e4m3 again{}", written_);
      export_model_folder(packed, *reader, {.low_bit = &profile}, Overwrite::no);
      const auto of_packed = ModelReader::open(packed);
      const StoredAs as = low_bit_format_of(profile.weight_bits) == LowBitFormat::fp8 ? StoredAs::fp8 : StoredAs::mxfp8;
      EXPECT_TRUE(std::any_of(of_packed->tensors().begin(), of_packed->tensors().end(), [&](const StoredTensor& t) { return t.as() == as; })) << name;
      Runtime runtime(BackendOptions{.threads = 2}, reader->model(), profile);
      const auto numbers = [&](const ModelReader& of) {
        return weight_images(runtime.backend, model->manifest(), *of.weight_set(runtime.backend, profile, 0), profile);
      };
      EXPECT_EQ(numbers(*of_packed), numbers(*reader)) << config << " under " << name;
      export_model_folder(again, *of_packed, {.low_bit = &profile}, Overwrite::no);
      EXPECT_EQ(numbers(*ModelReader::open(again)), numbers(*reader));
      EXPECT_EQ(read_file(packed / "config.json", 1 << 20), read_file(again / "config.json", 1 << 20));
      if (!profile.trains_all_weights()) {
        EXPECT_EQ(read_file(packed / "model.safetensors", 1 << 26), read_file(again / "model.safetensors", 1 << 26));
      }
      EXPECT_NE(of_packed->masters(), reader->masters()) << "the control: the folder's numbers are rounded";
    }
}

// A file's own blocks of FP8, whose scales no quantiser makes: computed with as they are under a frozen profile of the format, and written back.
TEST_F(ModelReaderTest, BlocksOfFp8AreAFilesOwn) {
  const Profile& profile = profile_by_name("cpu-fp8-base");
  const fs::path folder = folder_.path() / "fp8", again = folder_.path() / "again";
  Json config = read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/llama/scaled/config.json");
  config["hidden_size"] = 200, config["intermediate_size"] = 300, config["tie_word_embeddings"] = false;  // blocks that do not divide
  export_model_folder(folder, *ModelReader::open(write(*make_model(config))), {.low_bit = &profile}, Overwrite::no);
  std::string bytes = read_file(folder / "model.safetensors", 1 << 26);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  std::size_t changed = 0;
  {
    const SafetensorsFile file = SafetensorsFile::open(folder / "model.safetensors");
    for (const SafetensorsTensor& t : file.tensors()) {
      if (!t.name.ends_with("_scale_inv")) continue;
      std::vector<float> scales = file.read(t);
      for (float& scale : scales) scale *= 0.37f + 0.01f * static_cast<float>(++changed % 90);
      std::memcpy(bytes.data() + 8 + header + t.begin, scales.data(), scales.size() * sizeof(float));
    }
  }
  ASSERT_GT(changed, 20u);
  write_file_atomic(folder / "model.safetensors", bytes);
  const auto reader = ModelReader::open(folder);
  const Manifest& manifest = reader->model()->manifest();
  EXPECT_TRUE(reader->rounded_again(profile).empty());
  EXPECT_EQ(reader->rounded_again(profile_by_name("cpu-mxfp8-base")).size(), 1u);
  EXPECT_EQ(reader->rounded_again(profile_by_name("cpu-fp8")).size(), 1u);
  Runtime runtime(BackendOptions{.threads = 2}, reader->model(), profile);
  const auto weights = reader->weight_set(runtime.backend, profile, 0);
  const WeightImages numbers = weight_images(runtime.backend, manifest, *weights, profile), masters = reader->masters();
  const WeightImages quantised = weight_images(runtime.backend, manifest, *make_weight_set(runtime.backend, manifest, masters, profile, 0), profile);
  std::size_t compared = 0;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    if (weights->parameters[i].view().dtype != DType::u8 || manifest.parameters()[i].layout != ParameterLayout::packed) continue;
    EXPECT_EQ(numbers[i], masters[i]) << manifest.parameters()[i].name;
    EXPECT_NE(quantised[i], masters[i]) << "the control: the quantiser's scales are powers of two";
    ++compared;
  }
  EXPECT_GE(compared, 14u);
  export_model_folder(again, *reader, {.low_bit = &profile}, Overwrite::no);
  for (const char* file : {"model.safetensors", "config.json"}) EXPECT_EQ(read_file(folder / file, 1 << 26), read_file(again / file, 1 << 26)) << file;
}

// Scales of one byte are read, and written as bf16, which has all of them.
TEST_F(ModelReaderTest, ScalesInE4m3AreWrittenAsBf16) {
  const Profile& profile = profile_by_name("cpu-int4-base");
  const fs::path packed = folder_.path() / "packed", again = folder_.path() / "again";
  export_model_folder(packed, *ModelReader::open(write(*golden_model("llama/scaled"))), {.low_bit = &profile}, Overwrite::no);
  std::string header = "{", data;
  {
    const SafetensorsFile file = SafetensorsFile::open(packed / "model.safetensors");
    for (const SafetensorsTensor& t : file.tensors()) {
      const bool scales = t.name.ends_with("_scale");
      std::string bytes(static_cast<std::size_t>(scales ? t.elements() : static_cast<std::int64_t>(t.end - t.begin)), '\x38');  // 1 in E4M3
      if (!scales) file.read_bytes(t, {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()});
      header +=
          fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", header.size() > 1 ? "," : "", t.name,
                      safetensors_type_name(scales ? SafetensorsType::f8_e4m3 : t.type), fmt::join(t.shape, ","), data.size(), data.size() + bytes.size());
      data += bytes;
    }
  }
  header += "}";
  const std::uint64_t length = header.size();
  write_file_atomic(packed / "model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
  const auto reader = ModelReader::open(packed);
  ASSERT_TRUE(std::any_of(reader->tensors().begin(), reader->tensors().end(),
                          [](const StoredTensor& t) { return t.holds_int4() && t.scale_type() == SafetensorsType::f8_e4m3; }));
  export_model_folder(again, *reader, {.low_bit = &profile}, Overwrite::no);
  EXPECT_EQ(ModelReader::open(again)->masters(), reader->masters());
}

}  // namespace
}  // namespace lockstep
