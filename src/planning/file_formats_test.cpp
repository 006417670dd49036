// What docs/models.md tells of file formats is what folders are written with, and what `lockstep info` says of them.
#include "planning/file_formats.h"

#include <gtest/gtest.h>

#include "checkpoint/json_file.h"
#include "checkpoint/model_export.h"
#include "checkpoint/safetensors_test_tools.h"
#include "planning/shape_configs.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

Json golden_config(const std::string& name) { return read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / name / "config.json"); }

// The first row of these: the one whose scales our own quantisers make.
Names said(const Model& model, const std::string& format, const std::string& of) {
  const Json rows = exact_under_json(model);
  for (const Json& row : rows)
    if (row["format"] == format && row["of"] == of) return row["profiles"].get<Names>();
  return {"no row"};
}

Names of_folder(const fs::path& path, const std::string& format) {
  for (const StoredFormat& kind : ModelReader::open(path)->kinds())
    if (kind.type.name == format) return kind.exact_under;
  return {"not in the folder"};
}

TEST(FileFormats, OfFewBitsAreThoseOfConvertedFolders) {
  const TemporaryFolder folder;
  struct Case {
    const char *model, *profile, *format, *of;
  };
  for (const Case& c : {Case{"qwen3_moe/between", "cpu-int4-experts", "INT4, groups of 32", "experts alone"},
                        {"qwen3_moe/between", "cpu-int4-base", "INT4, groups of 32", "linear layers"},
                        {"llama/wide", "cpu-int4-base", "INT4, groups of 32", "linear layers"},
                        {"deepseek_v3/groups", "cpu-int4-experts", "INT4, groups of 32", "experts alone"},
                        {"qwen3_moe/between", "cpu-fp8-experts", "FP8, blocks of 128 x 128", "experts alone"},
                        {"qwen3_moe/between", "cpu-fp8-base", "FP8, blocks of 128 x 128", "linear layers"},
                        {"minimax_m2/norms", "cpu-mxfp8-experts-base", "MXFP8", "experts alone"},
                        {"llama/wide", "cpu-mxfp8-base", "MXFP8", "linear layers"},
                        {"gpt_oss/wide", "cpu-mxfp4-experts", "MXFP4", "experts alone"}}) {
    const std::string label = fmt::format("{} under {}", c.model, c.profile);
    const std::shared_ptr<const Model> model = make_model(golden_config(c.model));
    const fs::path plain = folder.path() / "plain", packed = folder.path() / "packed";
    fs::remove_all(plain), fs::remove_all(packed);
    save_model_folder(plain, *model, initial_weights(model->manifest(), 3, 0.1), {.dtype = DType::f32});
    export_model_folder(packed, *ModelReader::open(plain), {.low_bit = &profile_by_name(c.profile)}, Overwrite::no);
    const Names names = said(*model, c.format, c.of);
    EXPECT_EQ(names, of_folder(packed, c.format)) << label;
    EXPECT_NE(std::find(names.begin(), names.end(), c.profile), names.end()) << label;
    EXPECT_EQ(std::find(names.begin(), names.end(), "cpu-int8w"), names.end()) << label;
    EXPECT_EQ(said(*model, "F32", "all tensors"), of_folder(plain, "F32")) << label;
  }
}

TEST(FileFormats, ConfigsOfFewBitsAreRead) {
  const Json formats = few_bits_json();
  ASSERT_EQ(formats.size(), 4u);
  for (const Json& format : formats) {
    Json config = golden_config("llama/wide");
    config["quantization_config"] = format["quantization_config"];
    EXPECT_NO_THROW(make_model(config)) << format["name"];
    config["quantization_config"]["quant_method"] = "other";
    EXPECT_ANY_THROW(make_model(config)) << format["name"];
  }
  EXPECT_EQ(formats[0]["bits_a_weight"], 4.5);
  EXPECT_EQ(formats[3]["bits_a_weight"], 4.25);
}

// Of the published folders: what holds them as they are.
TEST(FileFormats, OfPublishedModels) {
  const auto model = [](const char* name) { return make_model(shape_config(name)); };
  EXPECT_EQ(said(*model("kimi-k2"), "INT4, groups of 32", "experts alone"), (Names{"cpu-f32", "cpu-f32-expanded", "cpu-int4-base", "cpu-int4-experts"}));
  EXPECT_EQ(said(*model("gpt-oss-120b"), "MXFP4", "experts alone"),
            (Names{"cpu-f32", "cpu-bf16w", "cpu-mxfp8-base", "cpu-mxfp4-base", "cpu-mxfp8-experts-base", "cpu-mxfp4-experts"}));
  // DeepSeek's own scales are no powers of two, and its latent attention has whole blocks a head.
  const Json rows = exact_under_json(*model("deepseek-v3"));
  const auto found = std::find_if(rows.begin(), rows.end(), [](const Json& row) {
    return row["format"] == "FP8, blocks of 128 x 128" && row["of"] == "linear layers" && row["scales"] == "others";
  });
  ASSERT_NE(found, rows.end());
  EXPECT_EQ((*found)["profiles"].get<Names>(), (Names{"cpu-f32", "cpu-f32-expanded", "cpu-fp8-base"}));
}

}  // namespace
}  // namespace lockstep
