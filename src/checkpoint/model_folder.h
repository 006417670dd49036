// Reads and writes Hugging Face model folders: config.json and safetensors, in one file or in shards with an index, to and from the layout
// of model/manifest.h; transformers loads what is written. Reads GGUF files alike.
//   const LoadedModel loaded = load_model_folder("models/countdown-glm");
//   save_model_folder("export", *loaded.model, loaded.masters, {.dtype = DType::bf16});
// Knows no family: names and shapes come from the manifest. A folder is written as `PATH.partial` and renamed when complete. Any thread.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/model_reader.h"
#include "model/model.h"
#include "model/weights.h"

namespace lockstep {

struct LoadedModel {
  std::shared_ptr<const Model> model;
  WeightImages masters;            // fp32, exactly the file's values
  DType file_dtype = DType::f32;   // bf16: every tensor is BF16 but those that stay fp32 in a bf16 file
  std::vector<std::string> notes;  // what was skipped (also logged)
};

// All weights in fp32, as a trainer of all parameters needs them; what serves reads them by tensor (checkpoint/model_reader.h).
// model.safetensors, else the shards of model.safetensors.index.json; or a GGUF file. Quantised values are decoded (checkpoint/stored_tensor.h).
// Per-expert tensors and fused ones (`experts.gate_up_proj` [E, 2 mi, h], gate rows first; `experts.down_proj` [E, h, mi]) are both read; tensors of
// layers beyond the model's are skipped with a note, those of a layer of multi-token prediction are not among the masters (ModelReader). Errors: not_found;
// corrupt_file for a missing or surplus tensor, a wrong shape, missing scales, a NaN or an infinity; unsupported for another dtype or other scales; what
// make_model throws.
LoadedModel load_model_folder(const std::filesystem::path& path, const ModelOptions& options = {});

struct SaveOptions {
  DType dtype = DType::bf16;  // or f32; tensors with FileTensor::fp32 are F32 either way
  std::uint64_t max_shard_bytes = 5'000'000'000;
  std::filesystem::path tokenizer_files_from;  // a model whose tokenizer files and chat template are copied; empty: none
  bool overwrite = false;
  // Files whose layer of multi-token prediction is written as they have it, in this dtype, where the model has one; null: it is left out.
  std::shared_ptr<const ModelReader> mtp_from = nullptr;
  const WeightImages* mtp_masters = nullptr;  // that layer itself, instead of what files have of it; not with `low_bit`
  // Not null, and then `dtype` says nothing: the file holds what this profile computes with (check_low_bit_profile: which can be written).
  // Its matrices of few bits are written as they are (checkpoint/computed_tensors.h: INT4, MXFP4, E4M3), with the bytes of the files that were read
  // where those had them so; those that have no such form (tables, cut or transposed ones) are F32, the rest BF16.
  const Profile* low_bit = nullptr;
};

// Writes config.json as it was read with the new dtype, generation_config.json, and the weights under transformers' names, atomically.
// Errors: already_exists without overwrite; io; numeric for a value that is, or rounds to, NaN or infinity;
// not_found when tokenizer_files_from holds no tokenizer.json.
void save_model_folder(const std::filesystem::path& path, const Model& model, const WeightImages& masters, const SaveOptions& options);
// Errors: unsupported for a profile whose compute copy no folder can hold; the message lists those that are allowed.
void check_low_bit_profile(const Profile& profile);

// What `lockstep info DIR` reports.
struct ModelFolderInfo {
  std::string path, family;
  std::int64_t parameters_total = 0, parameters_active = 0;  // trained ones; a token's, input embedding not counted
  std::int64_t layers = 0, hidden = 0, vocabulary = 0, context = 0, experts = 0, experts_a_token = 0, select_top_k = 0;
  std::int64_t window = 0, windowed_layers = 0;  // the most keys that a row sees, and in how many layers; 0: no layer has a window
  bool sinks = false;                            // whether heads have a logit that joins their softmax
  std::int64_t tensors = 0;
  std::string dtype, weights_sha256;
  std::int64_t mtp_parameters = 0, mtp_tensors = 0;                       // of the layer of multi-token prediction, in no number above; 0: the files have none
  std::string draft_sha256;                                               // its hash, made as weights_sha256; empty: none
  std::vector<std::pair<std::string, std::int64_t>> cache_bytes_a_token;  // by profile; study profiles left out
  std::vector<std::string> notes;
  std::string file_format;  // "safetensors", "GGUF version 3"
  std::vector<StoredFormat> stored;
};
// Reads every tensor, one after another. Errors: those of load_model_folder.
ModelFolderInfo model_folder_info(const std::filesystem::path& path, const ModelOptions& options = {});
Json to_json(const ModelFolderInfo& info);

}  // namespace lockstep
