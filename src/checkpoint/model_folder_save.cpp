#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/computed_tensors.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_export.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/model_source.h"
#include "checkpoint/safetensors.h"
#include "model/blocks/mtp_layer.h"
#include "model/low_bit_weights.h"
#include "model/quantisation_config.h"
#include "model/stored_names.h"
#include "numerics/element.h"
#include "numerics/int4_words.h"
#include "numerics/low_bit.h"
#include "numerics/mxfp4.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {

// What is written: images of all parameters, or what files hold, a tensor at a time.
class WrittenWeights {
 public:
  WrittenWeights(const Model& model, const WeightImages& masters, const SaveOptions& options) : manifest_(model.manifest()), masters_(&masters) {
    list(model, options.mtp_from.get(), options.mtp_masters);
  }
  WrittenWeights(const ModelReader& reader, const SaveOptions& options) : manifest_(reader.model()->manifest()), reader_(&reader), low_bit_(options.low_bit) {
    list(*reader.model(), &reader, low_bit_ ? nullptr : options.mtp_masters);
  }

  // In the order of the model; those of a layer of multi-token prediction are the last.
  const std::vector<const FileTensor*>& files() const { return files_; }
  bool writes_int4(const FileTensor& file) const { return low_bit_ && lockstep::writes_int4(manifest_of(file), stored(file), *low_bit_); }
  bool writes_mxfp4(const FileTensor& file) const { return low_bit_ && lockstep::writes_mxfp4(manifest_of(file), stored(file), *low_bit_); }
  bool writes_e4m3(const FileTensor& file) const { return low_bit_ && lockstep::writes_e4m3(manifest_of(file), stored(file), *low_bit_); }
  // fp8 or mxfp8 where some tensor is written so, else none.
  LowBitFormat e4m3_format() const {
    const bool any = low_bit_ && std::any_of(files_.begin(), files_.end(), [&](const FileTensor* file) { return writes_e4m3(*file); });
    return any ? low_bit_format_of(low_bit_->weight_bits) : LowBitFormat::none;
  }
  bool writes_any_mxfp4() const {
    return std::any_of(files_.begin(), files_.end(), [&](const FileTensor* file) { return writes_mxfp4(*file); });
  }
  // Whether the files that are read have all these tensors in the same few bits, and no other.
  bool written_alike() const {
    return reader_ && std::all_of(files_.begin(), files_.end(), [&](const FileTensor* file) {
             const StoredAs as = stored(*file).as();
             const StoredAs e4m3 = e4m3_format() == LowBitFormat::fp8 ? StoredAs::fp8 : StoredAs::mxfp8,
                            other = e4m3 == StoredAs::fp8 ? StoredAs::mxfp8 : StoredAs::fp8;
             return (as == StoredAs::int4) == writes_int4(*file) && (as == StoredAs::mxfp4) == writes_mxfp4(*file) && (as == e4m3) == writes_e4m3(*file) &&
                    as != other;
           });
  }
  SafetensorsType type(const FileTensor& file, DType dtype) const {
    if (file.fp32 || (!low_bit_ && dtype != DType::bf16)) return SafetensorsType::f32;
    const auto few_bits = [&](const Piece& piece) { return weight_bits(manifest_of(file).parameter(piece.parameter), *low_bit_) != 0; };
    return low_bit_ && std::any_of(file.pieces.begin(), file.pieces.end(), few_bits) ? SafetensorsType::f32 : SafetensorsType::bf16;
  }
  void values(const FileTensor& file, std::vector<float>& values) const {
    values.resize(static_cast<std::size_t>(file.size()));
    if (of_mtp(file) && mtp_masters_) mtp_manifest_->gather(file, *mtp_masters_, values.data());
    else if (of_mtp(file) && !low_bit_) mtp_from_->read(stored(file), values);
    else if (!reader_) manifest_.gather(file, *masters_, values.data());
    else reader_->read(stored(file), values);
    if (low_bit_) as_computed(manifest_of(file), stored(file), *low_bit_, values);
  }
  E4m3Matrix e4m3(const FileTensor& file) const { return read_e4m3(manifest_of(file), stored(file), *low_bit_); }
  Int4Matrix int4(const FileTensor& file) const { return read_int4(manifest_of(file), stored(file), *low_bit_); }
  Mxfp4Experts mxfp4(const FileTensor& file) const { return read_mxfp4_experts(manifest_of(file), stored(file), *low_bit_); }
  // That of the file; of E4M3, which is not written, bf16 has all numbers.
  SafetensorsType scale_type(const FileTensor& file) const {
    const bool own = stored(file).holds_int4() && stored(file).scale_type() != SafetensorsType::f8_e4m3;
    return own ? stored(file).scale_type() : SafetensorsType::bf16;
  }
  // Of E4M3: that of the file where its own scales are written, but for types that are not written; else `usual`.
  SafetensorsType e4m3_scale_type(const FileTensor& file, SafetensorsType usual) const {
    if (!keeps_e4m3(manifest_of(file), stored(file), *low_bit_)) return usual;
    const SafetensorsType own = stored(file).scale_type();
    return own == SafetensorsType::f16 || own == SafetensorsType::f8_e4m3 ? usual : own;
  }
  SafetensorsType shape_type(const FileTensor& file) const { return stored(file).holds_int4() ? stored(file).shape_type() : SafetensorsType::i64; }

 private:
  void list(const Model& model, const ModelReader* mtp_from, const WeightImages* mtp_masters) {
    const auto add = [&](const FileTensor& file) {
      places_[&file] = files_.size();
      files_.push_back(&file);
    };
    for (const FileTensor& file : manifest_.files()) add(file);
    trunk_files_ = files_.size();
    if (!model.mtp()) return;
    if (mtp_masters) {
      mtp_masters_ = mtp_masters;
      mtp_manifest_ = &model.mtp()->manifest();
      for (const FileTensor& file : mtp_manifest_->files()) add(file);
    } else if (mtp_from && mtp_from->has_mtp()) {
      mtp_from_ = mtp_from;
      mtp_manifest_ = &mtp_from->model()->mtp()->manifest();
      for (const StoredTensor& tensor : mtp_from->mtp_tensors()) add(tensor.file());
    }
  }
  bool of_mtp(const FileTensor& file) const { return places_.at(&file) >= trunk_files_; }
  const Manifest& manifest_of(const FileTensor& file) const { return of_mtp(file) ? *mtp_manifest_ : manifest_; }
  const StoredTensor& stored(const FileTensor& file) const {
    const std::size_t at = places_.at(&file);
    return at < trunk_files_ ? reader_->tensors()[at] : mtp_from_->mtp_tensors()[at - trunk_files_];
  }

  const Manifest& manifest_;
  std::vector<const FileTensor*> files_;
  std::unordered_map<const FileTensor*, std::size_t> places_;
  std::size_t trunk_files_ = 0;
  const ModelReader* mtp_from_ = nullptr;
  const WeightImages* mtp_masters_ = nullptr;
  const Manifest* mtp_manifest_ = nullptr;
  const WeightImages* masters_ = nullptr;
  const ModelReader* reader_ = nullptr;
  const Profile* low_bit_ = nullptr;
};

struct Shard {
  std::vector<const FileTensor*> files;
  std::uint64_t bytes = 0;
};

// The tensors that hold a tensor of the manifest.
std::vector<SafetensorsWriter::Entry> entries_of(const WrittenWeights& weights, const FileTensor& file, const SaveOptions& options) {
  if (weights.writes_mxfp4(file)) {
    const Mxfp4Names names(file.name);
    const std::int64_t experts = file.shape[0], groups = file.shape[1] / kMxfp4Group, outputs = file.shape[2];
    return {{names.blocks, SafetensorsType::u8, {experts, outputs, groups, kMxfp4Group / 2}}, {names.scales, SafetensorsType::u8, {experts, outputs, groups}}};
  }
  if (weights.writes_e4m3(file)) {
    const bool blocks = weights.e4m3_format() == LowBitFormat::fp8;
    const std::int64_t high = blocks ? kFp8Block : 1, wide = blocks ? kFp8Block : kQuantisedGroup;
    return {{file.name, SafetensorsType::f8_e4m3, file.shape},
            {block_scales_of(file.name),
             weights.e4m3_scale_type(file, blocks ? SafetensorsType::f32 : SafetensorsType::u8),
             {(file.rows() + high - 1) / high, (file.columns() + wide - 1) / wide}}};
  }
  if (!weights.writes_int4(file)) return {{file.name, weights.type(file, options.dtype), file.shape}};
  const Int4Names names(file.name);
  return {{names.numbers, SafetensorsType::i32, {file.rows(), int4_words(file.columns())}},
          {names.scales, weights.scale_type(file), {file.rows(), QuantisedShape{1, file.columns(), 4}.groups()}},
          {names.shape, weights.shape_type(file), {2}}};
}

// In the order of the model; a new shard begins where the size limit would be exceeded; tensors are never split.
std::vector<Shard> make_shards(const WrittenWeights& weights, const SaveOptions& options) {
  std::vector<Shard> shards(1);
  for (const FileTensor* file : weights.files()) {
    std::uint64_t bytes = 0;
    for (const auto& entry : entries_of(weights, *file, options)) bytes += static_cast<std::uint64_t>(entry.elements() * safetensors_type_bytes(entry.type));
    if (!shards.back().files.empty() && shards.back().bytes + bytes > options.max_shard_bytes) shards.emplace_back();
    shards.back().files.push_back(file);
    shards.back().bytes += bytes;
  }
  return shards;
}

void check_values(const FileTensor& file, const std::vector<float>& values, SafetensorsType type) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float stored = type == SafetensorsType::bf16 ? widen(round_to_bf16(values[i])) : values[i];
    if (!std::isfinite(stored))
      fail(ErrorCode::numeric, "element {} of '{}' is {}, stored as {}: a model with values that are no numbers is not saved", i, file.name, values[i],
           safetensors_type_name(type));
  }
}

// x, which must be exactly a number of half precision, as its 16 bits.
std::uint16_t half_of(float x) {
  const std::uint32_t sign = float_bits(x) >> 16 & 0x8000u, magnitude = float_bits(x) & 0x7fffffffu;
  if (magnitude >= float_bits(0x1p-14f)) return static_cast<std::uint16_t>(sign | ((magnitude >> 13) - (112u << 10)));
  return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(bits_float(magnitude) * 0x1p24f));
}

// Scales in the type that the file has them in; they are numbers of it.
void write_scales(SafetensorsWriter& writer, const SafetensorsWriter::Entry& entry, const std::vector<Bf16>& scales) {
  if (entry.type == SafetensorsType::bf16) return writer.write_bytes(scales.data(), scales.size() * sizeof(Bf16));
  std::vector<float> widened(scales.size());
  std::transform(scales.begin(), scales.end(), widened.begin(), widen);
  if (entry.type == SafetensorsType::f32) return writer.write(widened);
  std::vector<std::uint16_t> halves(scales.size());
  std::transform(widened.begin(), widened.end(), halves.begin(), half_of);
  writer.write_bytes(halves.data(), halves.size() * sizeof(std::uint16_t));
}

void write_shape(SafetensorsWriter& writer, const SafetensorsWriter::Entry& entry, const FileTensor& file) {
  if (entry.type == SafetensorsType::i64) return writer.write_bytes(file.shape.data(), file.shape.size() * sizeof(std::int64_t));
  const std::vector<std::int32_t> narrow(file.shape.begin(), file.shape.end());
  writer.write_bytes(narrow.data(), narrow.size() * sizeof(std::int32_t));
}

void write_shard(const fs::path& path, const Shard& shard, const WrittenWeights& weights, const SaveOptions& options) {
  std::vector<SafetensorsWriter::Entry> entries;
  std::unordered_map<std::string, const FileTensor*> by_name;
  for (const FileTensor* file : shard.files)
    for (SafetensorsWriter::Entry& entry : entries_of(weights, *file, options)) {
      by_name.emplace(entry.name, file);
      entries.push_back(std::move(entry));
    }
  AtomicFile out(path);
  SafetensorsWriter writer([&](const void* data, std::size_t bytes) { out.write(data, bytes); }, std::move(entries));
  std::vector<float> values;
  const FileTensor* packed_of = nullptr;  // what one tensor is packed into follows each other
  Mxfp4Experts experts;
  Int4Matrix matrix;
  E4m3Matrix e4m3;
  for (const SafetensorsWriter::Entry& entry : writer.entries()) {
    const FileTensor& file = *by_name.at(entry.name);
    if (weights.writes_mxfp4(file)) {
      if (std::exchange(packed_of, &file) != &file) experts = weights.mxfp4(file);
      const std::vector<std::uint8_t>& bytes = entry.name == Mxfp4Names(file.name).blocks ? experts.blocks : experts.scales;
      writer.write_bytes(bytes.data(), bytes.size());
      continue;
    }
    if (weights.writes_e4m3(file)) {
      if (std::exchange(packed_of, &file) != &file) e4m3 = weights.e4m3(file);
      if (entry.name == file.name) writer.write_bytes(e4m3.numbers.data(), e4m3.numbers.size());
      else if (!e4m3.block_scales.empty()) writer.write(e4m3.block_scales);
      else writer.write_bytes(e4m3.group_scales.data(), e4m3.group_scales.size());
      continue;
    }
    if (weights.writes_int4(file)) {
      const Int4Names names(file.name);
      if (std::exchange(packed_of, &file) != &file) matrix = weights.int4(file);
      if (entry.name == names.shape) write_shape(writer, entry, file);
      else if (entry.name == names.numbers) writer.write_bytes(matrix.words.data(), matrix.words.size() * sizeof(std::uint32_t));
      else write_scales(writer, entry, matrix.scales);
      continue;
    }
    weights.values(file, values);
    check_values(file, values, entry.type);
    writer.write(values);
  }
  writer.finish();
  out.commit();
}

void write_weights(const fs::path& folder, const WrittenWeights& weights, const SaveOptions& options) {
  const std::vector<Shard> shards = make_shards(weights, options);
  if (shards.size() == 1) return write_shard(folder / "model.safetensors", shards[0], weights, options);
  nlohmann::json index;  // sorted by name
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard(folder / name, shards[i], weights, options);
    for (const FileTensor* file : shards[i].files)
      for (const auto& entry : entries_of(weights, *file, options)) index["weight_map"][entry.name] = name;
    total += shards[i].bytes;
  }
  index["metadata"]["total_size"] = total;
  write_file_atomic(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

// The `quantization_config` of what is written in few bits.
Json low_bit_config(const WrittenWeights& weights) {
  if (weights.writes_any_mxfp4()) return quantisation_of(LowBitFormat::mxfp4, mxfp4_unconverted());
  constexpr std::string_view kWeight = ".weight";
  Json others = Json::array();
  for (const FileTensor* file : weights.files())
    if (file->shape.size() == 2 && file->name.ends_with(kWeight) && !weights.writes_int4(*file) && !weights.writes_e4m3(*file))
      others.push_back(file->name.substr(0, file->name.size() - kWeight.size()));
  const LowBitFormat e4m3 = weights.e4m3_format();
  return quantisation_of(e4m3 == LowBitFormat::none ? LowBitFormat::int4 : e4m3, std::move(others));
}

void write_configs(const fs::path& folder, const Model& model, const WrittenWeights& weights, const SaveOptions& options) {
  Json config = model.config();
  const char* dtype = options.low_bit || options.dtype == DType::bf16 ? "bfloat16" : "float32";
  config["dtype"] = dtype;
  if (!options.low_bit) config.erase("quantization_config");  // the folder that was read was quantised; what is written is not
  else if (!config.contains("quantization_config") || !weights.written_alike()) config["quantization_config"] = low_bit_config(weights);
  if (config.contains("torch_dtype")) config["torch_dtype"] = dtype;  // the older name of the same key; both must agree
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
  const std::unique_ptr<const FolderFiles> files = open_folder_files(from);
  if (!files->has("tokenizer.json")) fail(ErrorCode::not_found, "'{}' holds no tokenizer.json to copy", from.string());
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json", "generation_config.json"})
    if (files->has(name)) write_file_atomic(folder / name, files->read(name, kMostBytes));
}

}  // namespace

namespace {
template <class Folder>
void fill_model_folder(Folder&& folder, const Model& model, const WrittenWeights& weights, const SaveOptions& options) {
  if (!options.tokenizer_files_from.empty()) copy_tokenizer(options.tokenizer_files_from, folder.partial());
  write_configs(folder.partial(), model, weights, options);
  write_weights(folder.partial(), weights, options);
  folder.commit();
}

template <class F>
void save_checked(const fs::path& path, const SaveOptions& options, F&& save) {
  if (options.dtype != DType::bf16 && options.dtype != DType::f32)
    fail(ErrorCode::invalid_argument, "a model's dtype in files is {}, allowed are bf16 and f32", dtype_name(options.dtype));
  with_context(fmt::format("saving the model to '{}'", path.string()), save);
}
}  // namespace

void check_low_bit_profile(const Profile& profile) {
  if (is_low_bit_format(profile.weight_bits)) return;
  std::vector<std::string> allowed;
  for (const Profile& other : profiles())
    if (is_low_bit_format(other.weight_bits) && !other.study) allowed.push_back(other.name);
  fail(ErrorCode::unsupported, "profile is '{}', allowed are {}: folders hold their matrices as they are", profile.name, fmt::join(allowed, ", "));
}

void save_model_folder(const fs::path& path, const Model& model, const WeightImages& masters, const SaveOptions& options) {
  save_checked(path, options, [&] {
    fill_model_folder(AtomicFolder(path, options.overwrite ? AtomicFolder::Existing::replace : AtomicFolder::Existing::refuse), model,
                      WrittenWeights(model, masters, options), options);
  });
}

void export_model_folder(const fs::path& path, const Model& model, const WeightImages& masters, const SaveOptions& options, Overwrite overwrite) {
  save_checked(path, options, [&] { fill_model_folder(OutputFolder(path, overwrite), model, WrittenWeights(model, masters, options), options); });
}

void export_model_folder(const fs::path& path, const ModelReader& reader, const SaveOptions& options, Overwrite overwrite) {
  save_checked(path, options, [&] {
    if (options.low_bit) {
      check_low_bit_profile(*options.low_bit);
      reader.model()->require_profile(*options.low_bit);
      const std::vector<StoredTensor>& tensors = reader.tensors();
      const Manifest& manifest = reader.model()->manifest();
      if (std::none_of(tensors.begin(), tensors.end(), [&](const StoredTensor& tensor) {
            return writes_int4(manifest, tensor, *options.low_bit) || writes_mxfp4(manifest, tensor, *options.low_bit) ||
                   writes_e4m3(manifest, tensor, *options.low_bit);
          }))
        fail(ErrorCode::unsupported,
             "profile is '{}', and no tensor of this model can be packed so: INT4 and E4M3 are of matrices that are tensors of their own, MXFP4 of all experts "
             "in one "
             "tensor, as gpt_oss has them; allowed is to convert without packing",
             options.low_bit->name);
    }
    fill_model_folder(OutputFolder(path, overwrite), *reader.model(), WrittenWeights(reader, options), options);
  });
}

}  // namespace lockstep
