// MXFP4 as gpt-oss' folders have it: a tensor of all experts, transposed, in blocks and scales; and such a tensor in FP8.
#include "checkpoint/stored_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "checkpoint/safetensors_test_tools.h"
#include "numerics/mxfp4.h"

namespace lockstep {
namespace {

constexpr std::int64_t kExperts = 2, kInputs = 64, kOutputs = 6;

// [experts, inputs, outputs], each expert's matrix an item.
Manifest manifest_of(std::int64_t inputs = kInputs) {
  Manifest m;
  const ParameterId down = m.add({"experts.down", ParameterLayout::packed, kExperts, kOutputs, inputs});
  FileTensor file{"experts.down_proj", {kExperts, inputs, kOutputs}, false, {}};
  for (std::int64_t e = 0; e < kExperts; ++e) file.pieces.push_back({down, e, e * inputs, inputs, true});
  m.add_file(std::move(file));
  m.split(ParameterSplit::experts, {down});
  return m;
}

// A file by hand: the writer has no U8.
struct Raw {
  std::string name, dtype, shape, bytes;
};
std::string file_of(const std::vector<Raw>& tensors) {
  std::string header = "{", data;
  for (const Raw& t : tensors) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", header.size() > 1 ? "," : "", t.name, t.dtype, t.shape,
                          data.size(), data.size() + t.bytes.size());
    data += t.bytes;
  }
  header += "}";
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}
ModelFiles opened(const std::vector<Raw>& tensors) {
  std::vector<std::unique_ptr<const TensorFile>> files;
  files.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::from_bytes(file_of(tensors), "m.safetensors")));
  return ModelFiles(std::move(files));
}

struct Stored {
  std::string blocks = std::string(kExperts * kOutputs * kInputs / 2, '\0'), scales = std::string(kExperts * kOutputs * kInputs / 32, '\0');
  Stored() {
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<char>(i * 73 + i / 7);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<char>(120 + i % 9);
  }
  std::vector<Raw> tensors() const { return {{"experts.down_proj_blocks", "U8", "[2,6,2,16]", blocks}, {"experts.down_proj_scales", "U8", "[2,6,2]", scales}}; }
};

TEST(StoredMxfp4, IsTheTransposeOfItsBlocks) {
  const Manifest manifest = manifest_of();
  const Stored stored;
  const ModelFiles files = opened(stored.tensors());
  std::set<std::string> used;
  const auto found = StoredTensor::find(files, manifest, manifest.files()[0], used);
  ASSERT_TRUE(found && found->as() == StoredAs::mxfp4);
  EXPECT_EQ(used, (std::set<std::string>{"experts.down_proj_blocks", "experts.down_proj_scales"}));
  EXPECT_EQ(found->form().bits_a_weight(), 4.25);
  std::vector<float> values(kExperts * kInputs * kOutputs);
  found->read(0, kExperts * kInputs, values.data());
  for (std::int64_t e = 0; e < kExperts; ++e)
    for (std::int64_t n = 0; n < kOutputs; ++n)
      for (std::int64_t k = 0; k < kInputs; ++k) {
        const std::int64_t row = e * kOutputs + n;
        const auto byte = static_cast<std::uint8_t>(stored.blocks[static_cast<std::size_t>(row * kInputs / 2 + k / 2)]);
        const auto exponent = static_cast<std::uint8_t>(stored.scales[static_cast<std::size_t>(row * 2 + k / 32)]);
        ASSERT_EQ(float_bits(values[static_cast<std::size_t>((e * kInputs + k) * kOutputs + n)]),
                  float_bits(std::ldexp(widen_e2m1(byte >> (k % 2 * 4) & 15u), exponent - 127)))
            << e << " " << n << " " << k;
      }
  // Any rows, across experts too.
  for (const std::int64_t row : {0, 5, 31, 60, 63, 64, 100})
    for (const std::int64_t rows : {1, 8, 28}) {
      std::vector<float> some(static_cast<std::size_t>(rows * kOutputs));
      found->read(row, rows, some.data());
      EXPECT_TRUE(std::equal(some.begin(), some.end(), values.begin() + row * kOutputs)) << row << " " << rows;
    }
  // Outputs alone, as the blocks have them: gate and up stand in turn.
  for (const std::int64_t step : {1, 2}) {
    std::vector<float> some(static_cast<std::size_t>(2 * kInputs));
    found->read_outputs(1, 3 - step, step, 2, some.data());
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t k = 0; k < kInputs; ++k)
        ASSERT_EQ(some[static_cast<std::size_t>(i * kInputs + k)], values[static_cast<std::size_t>((kInputs + k) * kOutputs + 3 - step + i * step)])
            << step << " " << i << " " << k;
  }
  for (const auto& [profile, rounded] : std::vector<std::pair<const char*, bool>>{{"cpu-f32", false},
                                                                                  {"cpu-bf16w", false},
                                                                                  {"cpu-mxfp8-experts-base", false},
                                                                                  {"cpu-mxfp8-experts", true},
                                                                                  {"cpu-fp8", true},
                                                                                  {"cpu-mxfp4-experts", false},
                                                                                  {"cpu-int4-experts", true},
                                                                                  {"cpu-fp8-base", true}})
    EXPECT_EQ(found->is_rounded(manifest, profile_by_name(profile)), rounded) << profile;
}

// Each expert's matrix begins a block of its own, where its rows are no multiple of 128 too.
TEST(StoredFp8, ExpertsInOneTensorHaveBlocksOfTheirOwn) {
  constexpr std::int64_t kRows = 130;
  const Manifest manifest = manifest_of(kRows);
  const float scales[] = {1, 2, 4, 8};  // expert 0: rows 0 to 127, then 128 and 129; expert 1 the same
  const ModelFiles files = opened({{"experts.down_proj", "F8_E4M3", "[2,130,6]", std::string(kExperts * kRows * kOutputs, '\x38')},  // 1 throughout
                                   {"experts.down_proj_scale_inv", "F32", "[2,2,1]", std::string(reinterpret_cast<const char*>(scales), sizeof scales)}});
  std::set<std::string> used;
  const auto found = StoredTensor::find(files, manifest, manifest.files()[0], used);
  ASSERT_TRUE(found && found->as() == StoredAs::fp8);
  std::vector<float> values(kExperts * kRows * kOutputs);
  found->read(0, kExperts * kRows, values.data());
  for (std::int64_t row = 0; row < kExperts * kRows; ++row)
    for (std::int64_t n = 0; n < kOutputs; ++n)
      ASSERT_EQ(values[static_cast<std::size_t>(row * kOutputs + n)], scales[row / kRows * 2 + row % kRows / 128]) << row;
  std::vector<float> some(20 * kOutputs);
  found->read(120, 20, some.data());
  EXPECT_TRUE(std::equal(some.begin(), some.end(), values.begin() + 120 * kOutputs));
}

TEST(StoredMxfp4, FaultsAreOneErrorEach) {
  const Manifest manifest = manifest_of();
  const auto refused = [&](ErrorCode code, const std::string& part, const std::vector<Raw>& tensors) {
    const ModelFiles files = opened(tensors);
    std::set<std::string> used;
    expect_error(code, {part}, [&] {
      std::vector<float> values(kExperts * kInputs * kOutputs);
      if (const auto found = StoredTensor::find(files, manifest, manifest.files()[0], used)) found->read(0, kExperts * kInputs, values.data());
    });
  };
  Stored stored;
  std::vector<Raw> tensors = stored.tensors();
  refused(ErrorCode::corrupt_file, "there is no 'experts.down_proj_scales'", {tensors[0]});
  tensors[1].name = "experts.down_proj_scale";
  refused(ErrorCode::corrupt_file, "there is no 'experts.down_proj_scales' with their scales; did you mean 'experts.down_proj_scale'?", tensors);
  tensors = stored.tensors();
  tensors[1].shape = "[2,3,4]";
  refused(ErrorCode::corrupt_file, "has the shape [2, 3, 4], config.json says [2, 6, 2]", tensors);
  tensors = stored.tensors();
  tensors[0].dtype = "I8";
  refused(ErrorCode::unsupported, "has the dtype I8, allowed is U8", tensors);
  stored.scales[7] = '\xff';
  refused(ErrorCode::corrupt_file, "element 7 of tensor 'experts.down_proj_scales' is 255", stored.tensors());
}

}  // namespace
}  // namespace lockstep
