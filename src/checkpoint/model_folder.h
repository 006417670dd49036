// Hugging Face model folders: config.json and safetensors, in one file or in shards with an index, read into the layout
// of model/manifest.h and written so that transformers loads them. Knows no family: names and shapes come from the
// manifest. Any thread; a folder that is being written is `PATH.partial` until it is whole.
//   const LoadedModel loaded = load_model_folder("models/countdown-glm");
//   save_model_folder("export", *loaded.model, loaded.masters, {.dtype = DType::bf16});
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/model.h"
#include "model/weights.h"

namespace lockstep {

struct LoadedModel {
  std::shared_ptr<const Model> model;
  WeightImages masters;            // fp32, exactly the file's values
  DType file_dtype = DType::f32;   // bf16: every tensor is BF16 but those that stay fp32 in a bf16 file
  std::vector<std::string> notes;  // what was passed over (also logged)
};

// model.safetensors, else the shards of model.safetensors.index.json. Per-expert tensors and fused ones
// (`experts.gate_up_proj` [E, 2 mi, h], gate rows first; `experts.down_proj` [E, h, mi]) are both read; tensors of
// layers beyond the model's (multi-token prediction) are passed over with a note. Errors: not_found; corrupt_file for a
// missing or surplus tensor, a wrong shape, a NaN or an infinity; unsupported for a dtype other than F32, BF16, F16;
// what make_model throws.
LoadedModel load_model_folder(const std::filesystem::path& path, const ModelOptions& options = {});

struct SaveOptions {
  DType dtype = DType::bf16;  // or f32; tensors with FileTensor::fp32 are F32 either way
  std::uint64_t max_shard_bytes = 5'000'000'000;
  std::filesystem::path
      tokenizer_files_from;  // a folder whose tokenizer files and chat template come along; empty: none
  bool overwrite = false;
};

// config.json as it was read but for its dtype, generation_config.json, the weights in the oracle's names. In place
// whole or not at all. Errors: already_exists without overwrite; io; numeric for a value that is, or rounds to, no
// number; not_found when tokenizer_files_from holds no tokenizer.json.
void save_model_folder(const std::filesystem::path& path, const Model& model, const WeightImages& masters,
                       const SaveOptions& options);

// What `lockstep info DIR` reports.
struct ModelFolderInfo {
  std::string path, family;
  std::int64_t parameters_total = 0, parameters_active = 0;  // trained ones; a token's, input embedding not counted
  std::int64_t layers = 0, hidden = 0, vocabulary = 0, context = 0, experts = 0, experts_a_token = 0, select_top_k = 0;
  std::int64_t tensors = 0;
  std::string dtype, weights_sha256;
  std::vector<std::pair<std::string, std::int64_t>> cache_bytes_a_token;  // by profile; study profiles left out
  std::vector<std::string> notes;
};
ModelFolderInfo model_folder_info(const std::filesystem::path& path, const ModelOptions& options = {});
ModelFolderInfo model_folder_info(const std::filesystem::path& path, const LoadedModel& loaded);
Json to_json(const ModelFolderInfo& info);

}  // namespace lockstep
