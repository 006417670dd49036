#include "checkpoint/model_folder.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/hub_name.h"
#include "base/log.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_files.h"
#include "model/kv_cache.h"
#include "numerics/packed.h"
#include "numerics/profile.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {

std::string first_few(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 3); ++i)
    text += (i ? ", " : "") + quoted_name(names[i]);
  return text + (names.size() > 3 ? ", ..." : "");
}

std::vector<std::string> of_like_length(const std::string& name, const std::vector<std::string>& names) {
  std::vector<std::string> like;
  for (const std::string& other : names)
    if (like.size() < 10'000 && other.size() <= name.size() + 3 && name.size() <= other.size() + 3)
      like.push_back(other);
  return like;
}

class Loader {
 public:
  Loader(const fs::path& path, const Model& model)
      : path_(path), manifest_(model.manifest()), layers_(model.facts().layers), files_(path) {}

  LoadedModel load() {
    for (const FileTensor& file : manifest_.files()) place(file);
    check_aliases();
    check_names();
    LoadedModel loaded;
    loaded.masters.resize(manifest_.parameters().size());
    bool all_bf16 = true;
    std::vector<float> values;
    for (const Placed& placed : placed_) {
      values.resize(static_cast<std::size_t>(placed.file->size()));
      if (placed.scales) read_blocks(placed, values);
      else placed.found.file->read(*placed.found.tensor, values, placed.first);
      check_values(placed, values);
      manifest_.scatter(*placed.file, values.data(), loaded.masters);
      all_bf16 = all_bf16 && (placed.file->fp32 || placed.found.tensor->type == SafetensorsType::bf16);
    }
    loaded.file_dtype = all_bf16 ? DType::bf16 : DType::f32;
    loaded.notes = std::move(notes_);
    return loaded;
  }

 private:
  // Where the values of a manifest's tensor lie: `first` is the element of the found tensor they begin at.
  struct Placed {
    const FileTensor* file;
    ModelFiles::Found found;
    std::int64_t first = 0;
    ModelFiles::Found scales{};  // of blocks of 128 x 128, where the tensor is F8_E4M3
  };

  void place(const FileTensor& file) {
    if (const auto found = files_.find(file.name)) {
      check_shape(*found.file, *found.tensor, file.shape);
      used_.insert(file.name);
      placed_.push_back({&file, found, 0, scales_of(file, found)});
    } else if (!place_fused(file)) {
      missing_.push_back(file.name);
    }
  }

  // What Hugging Face folders of block-128 FP8 have beside a matrix: `scale_inv`, by which its numbers are multiplied.
  ModelFiles::Found scales_of(const FileTensor& file, const ModelFiles::Found& found) {
    if (found.tensor->type != SafetensorsType::f8_e4m3) return {};
    const std::string name = Manifest::block_scales_of(file.name);
    const auto scales = files_.find(name);
    if (!scales || file.shape.size() != 2) fail(ErrorCode::corrupt_file, "'{}': tensor {} has the dtype F8_E4M3, and there is no {} with the scales of a matrix", found.file->label(), quoted_name(file.name), quoted_name(name));
    const auto blocks = [](std::int64_t n) { return (n + kPackedBlock - 1) / kPackedBlock; };
    check_shape(*scales.file, *scales.tensor, {blocks(file.rows()), blocks(file.columns())});
    used_.insert(name);
    return scales;
  }

  static void read_blocks(const Placed& placed, std::vector<float>& values) {
    placed.found.file->read(*placed.found.tensor, values);
    const std::vector<float> scales = placed.scales.file->read(*placed.scales.tensor);
    const std::int64_t columns = placed.file->columns(), blocks = (columns + kPackedBlock - 1) / kPackedBlock;
    for (std::int64_t n = 0; n < placed.file->rows(); ++n)
      for (std::int64_t k = 0; k < columns; ++k)
        values[static_cast<std::size_t>(n * columns + k)] *= scales[static_cast<std::size_t>(n / kPackedBlock * blocks + k / kPackedBlock)];
  }

  bool place_fused(const FileTensor& file) {
    if (file.fused < 0) return false;
    const FusedTensor& fused = manifest_.fused()[static_cast<std::size_t>(file.fused)];
    const auto found = files_.find(fused.name);
    if (!found) return false;
    if (found.tensor->type == SafetensorsType::f8_e4m3) fail(ErrorCode::unsupported, "'{}': tensor {} holds all experts in F8_E4M3; allowed are F32, BF16 and F16, or a tensor an expert", found.file->label(), quoted_name(fused.name));
    check_shape(*found.file, *found.tensor, fused.shape);
    used_.insert(fused.name);
    placed_.push_back({&file, found, file.fused_begin});
    return true;
  }

  static void check_shape(const SafetensorsFile& file, const SafetensorsTensor& tensor,
                          const std::vector<std::int64_t>& shape) {
    if (tensor.shape != shape)
      fail(ErrorCode::corrupt_file, "'{}': tensor {} has the shape {}, config.json says {}", file.label(),
           quoted_name(tensor.name), shape_text(tensor.shape), shape_text(shape));
  }

  // A tied table that the file holds twice must be one table.
  void check_aliases() {
    for (const auto& [name, of] : manifest_.aliases()) {
      const auto again = files_.find(name), first = files_.find(of);
      if (!again || !first) continue;
      check_shape(*again.file, *again.tensor, first.tensor->shape);
      used_.insert(name);
      std::int64_t size = 1;
      for (const std::int64_t n : first.tensor->shape) size *= n;
      std::vector<float> a(static_cast<std::size_t>(size)), b(a.size());
      first.file->read(*first.tensor, a, 0);
      again.file->read(*again.tensor, b, 0);
      if (a != b)
        fail(ErrorCode::corrupt_file, "'{}': config.json says 'tie_word_embeddings', but tensor {} differs from {}", again.file->label(),
             quoted_name(name), quoted_name(of));
    }
  }

  void check_names() {
    std::vector<std::string> surplus;
    std::map<std::int64_t, std::int64_t> beyond;  // layer -> tensors
    for (const std::string& name : files_.names()) {
      if (used_.contains(name)) continue;
      const std::int64_t layer = manifest_.layer_passed_over(name);
      if (layer >= 0) ++beyond[layer];
      else surplus.push_back(name);
    }
    if (!missing_.empty()) {
      const std::string hint = did_you_mean(missing_[0], of_like_length(missing_[0], surplus));
      fail(ErrorCode::corrupt_file, "'{}' lacks {} of {} tensors: {}{}", path_.string(), missing_.size(),
           manifest_.files().size(), first_few(missing_), hint);
    }
    if (!surplus.empty()) {
      std::vector<std::string> known;
      for (const FileTensor& file : manifest_.files()) known.push_back(file.name);
      fail(ErrorCode::corrupt_file, "'{}' has {} tensors that the model does not know: {}{}", path_.string(),
           surplus.size(), first_few(surplus), did_you_mean(surplus[0], of_like_length(surplus[0], known)));
    }
    for (const auto& [layer, count] : beyond) {
      notes_.push_back(fmt::format(
          "{} tensors of {}{} were passed over: the model has {} layers (multi-token prediction)", count,
          manifest_.layer_prefix(), layer, layers_));
      log_info(notes_.back(), {{"path", path_.string()}});
    }
  }

  static void check_values(const Placed& placed, const std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i]))
        fail(ErrorCode::corrupt_file, "'{}': element {} of tensor {} is {}, allowed are finite numbers",
             placed.found.file->label(), placed.first + static_cast<std::int64_t>(i),
             quoted_name(placed.found.tensor->name), values[i]);
  }

  const fs::path& path_;
  const Manifest& manifest_;
  std::int64_t layers_;
  ModelFiles files_;
  std::vector<Placed> placed_;
  std::set<std::string> used_;
  std::vector<std::string> missing_, notes_;
};

}  // namespace

LoadedModel load_model_folder(const fs::path& path, const ModelOptions& options) {
  return with_context(fmt::format("reading the model '{}'", path.string()), [&] {
    std::error_code error;
    refuse_hub_name(path.string());
    if (!fs::is_directory(path, error)) fail(ErrorCode::not_found, "there is no folder '{}'", path.string());
    if (!fs::exists(path / "config.json", error))
      fail(ErrorCode::not_found, "'{}' holds no config.json", path.string());
    const std::shared_ptr<const Model> model = make_model(read_json_file(path / "config.json"), options);
    LoadedModel loaded = Loader(path, *model).load();
    loaded.model = model;
    return loaded;
  });
}

ModelFolderInfo model_folder_info(const fs::path& path, const ModelOptions& options) {
  return model_folder_info(path, load_model_folder(path, options));
}

ModelFolderInfo model_folder_info(const fs::path& path, const LoadedModel& loaded) {
  const Model& model = *loaded.model;
  ModelFolderInfo info;
  info.path = path.string();
  info.family = model.family();
  info.parameters_total = model.manifest().trained_size();
  info.parameters_active = model.facts().active_size;
  info.layers = model.facts().layers;
  info.hidden = model.facts().hidden;
  info.vocabulary = model.facts().vocabulary;
  info.context = model.facts().max_positions;
  info.experts = model.facts().expert_count;
  info.experts_a_token = model.facts().experts_a_token;
  info.select_top_k = model.facts().select_top_k;
  info.tensors = static_cast<std::int64_t>(model.manifest().files().size());
  info.dtype = dtype_name(loaded.file_dtype);
  info.weights_sha256 = weights_sha256(model.manifest(), loaded.masters);
  for (const Profile& profile : profiles())
    if (!profile.study)
      info.cache_bytes_a_token.emplace_back(profile.name, KvCache::bytes_a_position(model.cache_shapes(), profile));
  info.notes = loaded.notes;
  return info;
}

Json to_json(const ModelFolderInfo& info) {
  Json cache = Json::object();
  for (const auto& [profile, bytes] : info.cache_bytes_a_token) cache[profile] = bytes;
  return {{"path", info.path},
          {"family", info.family},
          {"parameters", {{"total", info.parameters_total}, {"active", info.parameters_active}}},
          {"layers", info.layers},
          {"hidden", info.hidden},
          {"experts", info.experts},
          {"experts_a_token", info.experts_a_token},
          {"select_top_k", info.select_top_k},
          {"vocabulary", info.vocabulary},
          {"context", info.context},
          {"tensors", info.tensors},
          {"dtype", info.dtype},
          {"cache_bytes_a_token", cache},
          {"weights_sha256", info.weights_sha256},
          {"notes", info.notes}};
}

}  // namespace lockstep
