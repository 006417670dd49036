// Reading by tensor: the compute copies have the bits of those made of fp32 images of all, under every profile and on every backend, and little
// is in memory beside them.
#include "checkpoint/model_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
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

// At least 14 of the chosen parameters are computed with in few bits, and with the file's own numbers, which the quantiser does not make. Returns all numbers.
WeightImages expect_numbers_of_file(Runtime& runtime, const ModelReader& reader, const Profile& profile, bool (*chosen)(const Parameter&)) {
  const Manifest& manifest = reader.model()->manifest();
  const auto weights = reader.weight_set(runtime.backend, profile, 0);
  const WeightImages numbers = weight_images(runtime.backend, manifest, *weights, profile), masters = reader.masters();
  const WeightImages quantised = weight_images(runtime.backend, manifest, *make_weight_set(runtime.backend, manifest, masters, profile, 0), profile);
  std::size_t compared = 0;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    if (weights->parameters[i].view().dtype != DType::u8 || !chosen(p)) continue;
    EXPECT_EQ(numbers[i], masters[i]) << p.name;
    EXPECT_NE(quantised[i], masters[i]) << p.name << ", the control: the quantiser makes other numbers";
    ++compared;
  }
  EXPECT_GE(compared, 14u);
  return numbers;
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
  EXPECT_TRUE(reader->rounded_again(profile).empty());
  EXPECT_EQ(reader->rounded_again(profile_by_name("cpu-mxfp8-base")).size(), 1u);
  EXPECT_EQ(reader->rounded_again(profile_by_name("cpu-fp8")).size(), 1u);
  Runtime runtime(BackendOptions{.threads = 2}, reader->model(), profile);
  expect_numbers_of_file(runtime, *reader, profile, [](const Parameter& p) { return p.layout == ParameterLayout::packed; });
  export_model_folder(again, *reader, {.low_bit = &profile}, Overwrite::no);
  for (const char* file : {"model.safetensors", "config.json"}) EXPECT_EQ(read_file(folder / file, 1 << 26), read_file(again / file, 1 << 26)) << file;
}

// What stands in a file, for tests that write it again with some of it changed.
struct RawTensor {
  SafetensorsType type;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
std::map<std::string, RawTensor> raw_tensors(const fs::path& path) {
  std::map<std::string, RawTensor> tensors;
  const SafetensorsFile file = SafetensorsFile::open(path);
  for (const SafetensorsTensor& t : file.tensors()) {
    std::string bytes(static_cast<std::size_t>(t.end - t.begin), '\0');
    file.read_bytes(t, {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()});
    tensors[t.name] = {t.type, t.shape, std::move(bytes)};
  }
  return tensors;
}
void write_raw(const fs::path& path, const std::map<std::string, RawTensor>& tensors) {
  std::string header = "{", data;
  for (const auto& [name, t] : tensors) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", header.size() > 1 ? "," : "", name,
                          safetensors_type_name(t.type), fmt::join(t.shape, ","), data.size(), data.size() + t.bytes.size());
    data += t.bytes;
  }
  header += "}";
  const std::uint64_t length = header.size();
  write_file_atomic(path, std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
}
bool same_tensors(const std::map<std::string, RawTensor>& a, const std::map<std::string, RawTensor>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.type == y.second.type && x.second.shape == y.second.shape && x.second.bytes == y.second.bytes;
         });
}
// Codes of E4M3 up to 240, which is 1.875 times a power of two.
std::string codes_up_to_240(std::size_t count) {
  std::string codes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) codes[i] = static_cast<char>(i * 31 % 0x78 + (i % 3 ? 0u : 0x80u));
  return codes;
}

// Both parts of what a latent attention's file has in one tensor are computed with as they stand, the transposed one too, where each head's rows are
// whole blocks, as DeepSeek-V3's are; and that tensor is written back in its own bytes.
TEST_F(ModelReaderTest, BlocksOfFp8AreAFilesOwnInALatentAttention) {
  const Profile& profile = profile_by_name("cpu-fp8-base");
  for (const std::int64_t nope : {128, 256, 120}) {  // one block of rows a head and part, two, cut ones
    Json config = read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/deepseek_v3/groups/config.json");
    config["num_attention_heads"] = config["num_key_value_heads"] = 2;
    config["qk_nope_head_dim"] = nope, config["qk_head_dim"] = nope + 4, config["v_head_dim"] = 128, config["kv_lora_rank"] = 160;
    const fs::path folder = folder_.path() / fmt::format("latent{}", nope), again = folder_.path() / fmt::format("latent{} again", nope);
    export_model_folder(folder, *ModelReader::open(write(*make_model(config))), {.low_bit = &profile}, Overwrite::no);
    std::map<std::string, RawTensor> tensors = raw_tensors(folder / "model.safetensors");
    std::size_t changed = 0;
    for (std::int64_t layer = 0; layer < 3; ++layer) {
      const std::string name = fmt::format("model.layers.{}.self_attn.kv_b_proj.weight", layer);
      RawTensor& numbers = tensors.at(name);
      ASSERT_EQ(numbers.type, SafetensorsType::f32) << "a cut matrix that was in fp32 is not packed";
      const std::int64_t rows = numbers.shape[0], blocks = (rows + 127) / 128 * 2;
      numbers = {SafetensorsType::f8_e4m3, numbers.shape, codes_up_to_240(static_cast<std::size_t>(rows * 160))};
      std::vector<float> scales;
      for (std::int64_t i = 0; i < blocks; ++i) scales.push_back(0.0003f + 0.00007f * static_cast<float>(++changed));
      tensors[name + "_scale_inv"] = {
          SafetensorsType::f32, {blocks / 2, 2}, std::string(reinterpret_cast<const char*>(scales.data()), scales.size() * sizeof(float))};
    }
    write_raw(folder / "model.safetensors", tensors);
    const auto reader = ModelReader::open(folder);
    const Manifest& manifest = reader->model()->manifest();
    const bool aligned = nope % 128 == 0;
    EXPECT_EQ(reader->rounded_again(profile).empty(), aligned);
    Runtime runtime(BackendOptions{.threads = 2}, reader->model(), profile);
    const WeightImages numbers = weight_images(runtime.backend, manifest, *reader->weight_set(runtime.backend, profile, 0), profile),
                       masters = reader->masters();
    std::size_t cut = 0;
    for (std::size_t i = 0; i < masters.size(); ++i) {
      const Parameter& p = manifest.parameters()[i];
      if (p.name.find("kv_b_proj") == std::string::npos) continue;
      EXPECT_EQ(numbers[i] == masters[i], aligned) << p.name;
      ++cut;
    }
    EXPECT_EQ(cut, 6u);
    export_model_folder(again, *reader, {.low_bit = &profile}, Overwrite::no);
    EXPECT_EQ(same_tensors(raw_tensors(again / "model.safetensors"), tensors), aligned);
    if (aligned) {
      EXPECT_EQ(read_file(folder / "config.json", 1 << 20), read_file(again / "config.json", 1 << 20));
    }
    EXPECT_EQ(weight_images(runtime.backend, manifest, *ModelReader::open(again)->weight_set(runtime.backend, profile, 0), profile), numbers);
  }
}

// Groups of 32 that no quantiser of MXFP8 makes, since their largest number is 1.875 times a power of two (it would become 1.75): of a folder in MXFP8, and
// of one in FP8 whose scales are powers of two, as newer DeepSeek folders are.
TEST_F(ModelReaderTest, GroupsOfMxfp8AreAFilesOwn) {
  const Profile& profile = profile_by_name("cpu-mxfp8-base");
  for (const char* of : {"cpu-mxfp8-base", "cpu-fp8-base"}) {
    const fs::path folder = folder_.path() / of, again = folder_.path() / fmt::format("{} again", of);
    Json config = read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/llama/scaled/config.json");
    config["hidden_size"] = 200, config["intermediate_size"] = 300, config["tie_word_embeddings"] = false;  // groups and blocks that do not divide
    export_model_folder(folder, *ModelReader::open(write(*make_model(config))), {.low_bit = &profile_by_name(of)}, Overwrite::no);
    std::map<std::string, RawTensor> tensors = raw_tensors(folder / "model.safetensors");
    for (auto& [name, t] : tensors)
      if (t.type == SafetensorsType::f8_e4m3) t.bytes = codes_up_to_240(t.bytes.size());
    write_raw(folder / "model.safetensors", tensors);
    const auto reader = ModelReader::open(folder);
    const Manifest& manifest = reader->model()->manifest();
    EXPECT_TRUE(reader->rounded_again(profile).empty());
    Runtime runtime(BackendOptions{.threads = 2}, reader->model(), profile);
    SCOPED_TRACE(of);
    const WeightImages numbers = expect_numbers_of_file(runtime, *reader, profile, [](const Parameter&) { return true; });
    export_model_folder(again, *reader, {.low_bit = &profile}, Overwrite::no);
    EXPECT_EQ(weight_images(runtime.backend, manifest, *ModelReader::open(again)->weight_set(runtime.backend, profile, 0), profile), numbers);
    if (profile.name == of) {
      EXPECT_TRUE(same_tensors(raw_tensors(again / "model.safetensors"), tensors));
    }
  }
}

// What a matrix in few bits lacks is named, and what stands there instead by nearly that name.
TEST_F(ModelReaderTest, AMissingScaleIsNamed) {
  struct Case {
    const char *profile, *scale, *misspelt;
  };
  for (const Case& c : {Case{"cpu-int4-base", "weight_scale", "weight_scal"}, {"cpu-fp8-base", "weight_scale_inv", "weight_scale_in"}}) {
    const fs::path folder = folder_.path() / c.profile;
    export_model_folder(folder, *ModelReader::open(write(*golden_model("llama/wide"))), {.low_bit = &profile_by_name(c.profile)}, Overwrite::no);
    std::map<std::string, RawTensor> tensors = raw_tensors(folder / "model.safetensors");
    const std::string module = "model.layers.0.mlp.up_proj.", name = module + c.scale;
    auto scales = tensors.extract(name);
    write_raw(folder / "model.safetensors", tensors);
    expect_error(ErrorCode::corrupt_file, {"model.safetensors'", fmt::format("there is no '{}'", name)}, [&] { ModelReader::open(folder); });
    scales.key() = module + c.misspelt;
    tensors.insert(std::move(scales));
    write_raw(folder / "model.safetensors", tensors);
    expect_error(ErrorCode::corrupt_file, {fmt::format("did you mean '{}{}'?", module, c.misspelt)}, [&] { ModelReader::open(folder); });
  }
}

// Scales of one byte are read, and written as bf16, which has all of them.
TEST_F(ModelReaderTest, ScalesInE4m3AreWrittenAsBf16) {
  const Profile& profile = profile_by_name("cpu-int4-base");
  const fs::path packed = folder_.path() / "packed", again = folder_.path() / "again";
  export_model_folder(packed, *ModelReader::open(write(*golden_model("llama/scaled"))), {.low_bit = &profile}, Overwrite::no);
  std::map<std::string, RawTensor> tensors = raw_tensors(packed / "model.safetensors");
  for (auto& [name, t] : tensors)
    if (name.ends_with("_scale")) t = {SafetensorsType::f8_e4m3, t.shape, std::string(t.bytes.size() / 2, '\x38')};  // 1 in E4M3, for bf16
  write_raw(packed / "model.safetensors", tensors);
  const auto reader = ModelReader::open(packed);
  ASSERT_TRUE(std::any_of(reader->tensors().begin(), reader->tensors().end(),
                          [](const StoredTensor& t) { return t.holds_int4() && t.scale_type() == SafetensorsType::f8_e4m3; }));
  export_model_folder(again, *reader, {.low_bit = &profile}, Overwrite::no);
  EXPECT_EQ(ModelReader::open(again)->masters(), reader->masters());
}

}  // namespace
}  // namespace lockstep
