#include <cmath>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_export.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/safetensors.h"
#include "numerics/element.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {

struct Shard {
  std::vector<const FileTensor*> files;
  std::uint64_t bytes = 0;
};

SafetensorsType file_type(const FileTensor& file, DType dtype) {
  return dtype == DType::bf16 && !file.fp32 ? SafetensorsType::bf16 : SafetensorsType::f32;
}

// In the order of the model, a new shard where the limit would be passed; a tensor is never cut.
std::vector<Shard> make_shards(const Manifest& manifest, const SaveOptions& options) {
  std::vector<Shard> shards(1);
  for (const FileTensor& file : manifest.files()) {
    const auto bytes = static_cast<std::uint64_t>(file.size() * safetensors_type_bytes(file_type(file, options.dtype)));
    if (!shards.back().files.empty() && shards.back().bytes + bytes > options.max_shard_bytes) shards.emplace_back();
    shards.back().files.push_back(&file);
    shards.back().bytes += bytes;
  }
  return shards;
}

void check_values(const FileTensor& file, const std::vector<float>& values, SafetensorsType type) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float stored = type == SafetensorsType::bf16 ? widen(round_to_bf16(values[i])) : values[i];
    if (!std::isfinite(stored))
      fail(ErrorCode::numeric,
           "element {} of '{}' is {}, stored as {}: a model with values that are no numbers is not saved", i, file.name,
           values[i], safetensors_type_name(type));
  }
}

void write_shard(const fs::path& path, const Shard& shard, const Manifest& manifest, const WeightImages& masters,
                 DType dtype) {
  std::vector<SafetensorsWriter::Entry> entries;
  std::unordered_map<std::string_view, const FileTensor*> by_name;
  for (const FileTensor* file : shard.files) {
    entries.push_back({file->name, file_type(*file, dtype), file->shape});
    by_name.emplace(file->name, file);
  }
  AtomicFile out(path);
  SafetensorsWriter writer([&](const void* data, std::size_t bytes) { out.write(data, bytes); }, std::move(entries));
  std::vector<float> values;
  for (const SafetensorsWriter::Entry& entry : writer.entries()) {
    const FileTensor& file = *by_name.at(entry.name);
    values.resize(static_cast<std::size_t>(file.size()));
    manifest.gather(file, masters, values.data());
    check_values(file, values, entry.type);
    writer.write(values);
  }
  writer.finish();
  out.commit();
}

void write_weights(const fs::path& folder, const Manifest& manifest, const WeightImages& masters,
                   const SaveOptions& options) {
  const std::vector<Shard> shards = make_shards(manifest, options);
  if (shards.size() == 1) return write_shard(folder / "model.safetensors", shards[0], manifest, masters, options.dtype);
  nlohmann::json index;  // sorted by name
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard(folder / name, shards[i], manifest, masters, options.dtype);
    for (const FileTensor* file : shards[i].files) index["weight_map"][file->name] = name;
    total += shards[i].bytes;
  }
  index["metadata"]["total_size"] = total;
  write_file_atomic(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

void write_configs(const fs::path& folder, const Model& model, const SaveOptions& options) {
  Json config = model.config();
  const char* dtype = options.dtype == DType::bf16 ? "bfloat16" : "float32";
  config["dtype"] = dtype;
  config.erase("quantization_config");  // of the folder that was read: these are plain numbers
  if (config.contains("torch_dtype")) config["torch_dtype"] = dtype;  // the name it had before; they must not disagree
  write_file_atomic(folder / "config.json", json_text(config));
  std::error_code error;
  if (fs::exists(folder / "generation_config.json", error) || model.facts().eos_tokens.empty()) return;
  Json generation = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (config.contains(key) && !config.at(key).is_null()) generation[key] = config.at(key);
  write_file_atomic(folder / "generation_config.json", json_text(generation));
}

void copy_tokenizer(const fs::path& from, const fs::path& folder) {
  constexpr std::size_t kMostBytes = std::size_t{256} << 20;
  std::error_code error;
  if (!fs::exists(from / "tokenizer.json", error))
    fail(ErrorCode::not_found, "'{}' holds no tokenizer.json to copy", from.string());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
                           "chat_template.json", "generation_config.json"})
    if (fs::exists(from / name, error)) write_file_atomic(folder / name, read_file(from / name, kMostBytes));
}

}  // namespace

namespace {
template <class Folder>
void fill_model_folder(Folder&& folder, const Model& model, const WeightImages& masters, const SaveOptions& options) {
  if (!options.tokenizer_files_from.empty()) copy_tokenizer(options.tokenizer_files_from, folder.partial());
  write_configs(folder.partial(), model, options);
  write_weights(folder.partial(), model.manifest(), masters, options);
  folder.commit();
}

template <class F>
void save_checked(const fs::path& path, const SaveOptions& options, F&& save) {
  if (options.dtype != DType::bf16 && options.dtype != DType::f32)
    fail(ErrorCode::invalid_argument, "a model's dtype in files is {}, allowed are bf16 and f32", dtype_name(options.dtype));
  with_context(fmt::format("saving the model to '{}'", path.string()), save);
}
}  // namespace

void save_model_folder(const fs::path& path, const Model& model, const WeightImages& masters, const SaveOptions& options) {
  save_checked(path, options, [&] {
    fill_model_folder(AtomicFolder(path, options.overwrite ? AtomicFolder::Existing::replace : AtomicFolder::Existing::refuse), model, masters, options);
  });
}

void export_model_folder(const fs::path& path, const Model& model, const WeightImages& masters, const SaveOptions& options, Overwrite overwrite) {
  save_checked(path, options, [&] { fill_model_folder(OutputFolder(path, overwrite), model, masters, options); });
}

}  // namespace lockstep
