#include "checkpoint/model_reader.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/give_way.h"
#include "base/hub_name.h"
#include "base/log.h"
#include "checkpoint/computed_tensors.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_source.h"
#include "checkpoint/reading_memory.h"
#include "model/blocks/mtp_layer.h"
#include "model/value_head.h"
#include "model/weights_hash.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
std::vector<std::string> of_like_length(const std::string& name, const std::vector<std::string>& names) {
  std::vector<std::string> like;
  for (const std::string& other : names)
    if (like.size() < 10'000 && other.size() <= name.size() + 3 && name.size() <= other.size() + 3) like.push_back(other);
  return like;
}

// Whether this is the name of an expert's tensor, of any number: that of expert 0 or 1 but for the number.
bool is_experts(const Manifest& manifest, const std::string& name) {
  const std::vector<FileTensor>& files = manifest.files();
  for (std::size_t i = 0; i + 1 < files.size(); ++i) {
    const Piece &zero = files[i].pieces[0], &one = files[i + 1].pieces[0];
    if (zero.item != 0 || one.item != 1 || zero.parameter != one.parameter || manifest.parameter(zero.parameter).split != ParameterSplit::experts) continue;
    const std::string& of_zero = files[i].name;
    const auto number = static_cast<std::size_t>(std::mismatch(of_zero.begin(), of_zero.end(), files[i + 1].name.begin()).first - of_zero.begin());
    const std::string before = of_zero.substr(0, number), after = of_zero.substr(number + 1);
    if (name.size() > before.size() + after.size() && name.starts_with(before) && name.ends_with(after) &&
        name.find_first_not_of("0123456789", number) == name.size() - after.size())
      return true;
  }
  return false;
}

WeightImages masters_of(const ModelReader& reader, const Manifest& manifest, const std::vector<StoredTensor>& tensors) {
  WeightImages masters(manifest.parameters().size());
  for (const StoredTensor& tensor : tensors) reader.scatter(tensor, manifest, tensor.file(), masters);
  return masters;
}

// What stands behind the layer's number in the names of an indexer's tensors; empty without one.
std::set<std::string> indexer_names(const Manifest& manifest) {
  std::set<std::string> names;
  for (const FileTensor& file : manifest.files()) {
    if (!manifest.parameter(file.pieces[0].parameter).indexer) continue;
    const std::size_t layer = manifest.layer_prefix().size();
    if (const std::size_t dot = file.name.find('.', layer); dot != std::string::npos) names.insert(file.name.substr(dot));
  }
  return names;
}

std::string sha256_of(const ModelReader& reader, const Manifest& manifest, const std::vector<StoredTensor>& tensors) {
  std::map<std::string_view, const StoredTensor*> by_name;
  for (const StoredTensor& tensor : tensors) by_name.emplace(tensor.file().name, &tensor);
  WeightsHash hash;
  for (const FileTensor* file : files_by_name(manifest)) {
    hash.tensor(*file);
    reader.read_rows(*by_name.at(file->name), [&](std::span<const float> values) { hash.values(values); });
  }
  return hash.hex();
}
}  // namespace

std::shared_ptr<const ModelReader> ModelReader::open(const fs::path& path, const ModelOptions& options) {
  return with_context(fmt::format("reading the model '{}'", path.string()), [&]() -> std::shared_ptr<const ModelReader> {
    std::error_code error;
    refuse_other_model(path.string());
    if (!is_gguf_file(path) && !fs::is_directory(path, error)) fail(ErrorCode::not_found, "there is no folder '{}'", path.string());
    const std::unique_ptr<const FolderFiles> files = open_folder_files(path);
    if (!files->has("config.json")) fail(ErrorCode::not_found, "'{}' holds no config.json", path.string());
    Json config = read_json_file(*files, "config.json");
    // transformers' config.json does not say whether a value head has a bias.
    if (is_value_config(config) && ModelFiles(path).find("score.bias")) config["score_bias"] = true;
    const std::shared_ptr<const Model> model = make_model(config, options);
    return std::make_shared<const ModelReader>(path.string(), model, ModelFiles(path));
  });
}

ModelReader::ModelReader(std::string label, std::shared_ptr<const Model> model, ModelFiles files)
    : label_(std::move(label)), model_(std::move(model)), files_(std::move(files)) {
  std::set<std::string> used;
  std::vector<std::string> missing;
  for (const FileTensor& file : model_->manifest().files()) {
    if (const auto stored = StoredTensor::find(files_, model_->manifest(), file, used)) tensors_.push_back(*stored);
    else missing.push_back(file.name);
  }
  check_aliases(used);
  find_mtp(used);
  check_names(used, missing);
}

// Where the file holds a tied table twice, both copies must be equal.
void ModelReader::check_aliases(std::set<std::string>& used) const {
  for (const auto& [name, of] : model_->manifest().aliases()) {
    if (!files_.find(name) || !files_.find(of)) continue;
    check_copy(name, of, "config.json says 'tie_word_embeddings'");
    used.insert(name);
  }
}

void ModelReader::check_copy(const std::string& name, const std::string& of, const std::string& why) const {
  const auto again = files_.find(name), first = files_.find(of);
  check_tensor_shape(*again.file, *again.tensor, first.tensor->shape);
  const std::int64_t columns = std::max<std::int64_t>(first.tensor->shape.empty() ? 1 : first.tensor->shape.back(), 1);
  const std::int64_t at_once = rows_at_once(columns) * columns, size = first.tensor->elements();
  std::vector<float> a, b;
  for (std::int64_t at = 0; at < size; at += at_once) {
    a.resize(static_cast<std::size_t>(std::min(at_once, size - at)));
    b.resize(a.size());
    first.file->read(*first.tensor, a, at);
    again.file->read(*again.tensor, b, at);
    if (a != b) fail(ErrorCode::corrupt_file, "'{}': {}, but tensor {} differs from {}", again.file->label(), why, quoted_name(name), quoted_name(of));
  }
}

void ModelReader::check_names(const std::set<std::string>& used, const std::vector<std::string>& missing) {
  const Manifest& manifest = model_->manifest();
  std::vector<std::string> surplus;
  std::map<std::int64_t, std::int64_t> beyond;  // layer -> tensors
  std::int64_t of_indexers = 0;                 // of layers that use another's selection
  const std::set<std::string> of_indexer = indexer_names(manifest);
  for (const std::string& name : files_.names()) {
    if (used.contains(name)) continue;
    const std::int64_t layer = manifest.layer_passed_over(name);
    const std::size_t dot = name.starts_with(manifest.layer_prefix()) ? name.find('.', manifest.layer_prefix().size()) : std::string::npos;
    if (layer >= 0) ++beyond[layer];
    else if (dot != std::string::npos && of_indexer.contains(name.substr(dot))) ++of_indexers;
    else surplus.push_back(name);
  }
  // Files whose experts are not those of config.json: their number says more than the name of one of their tensors.
  const std::string experts = fmt::format("; by config.json a layer has {} experts, from 0 on", model_->facts().expert_count);
  if (!missing.empty()) {
    std::string hint = did_you_mean(missing[0], of_like_length(missing[0], surplus));
    if (hint.empty() && is_experts(manifest, missing[0])) hint = experts;
    fail(ErrorCode::corrupt_file, "'{}' lacks {} of {} tensors: {}{}", label_, missing.size(), manifest.files().size(), first_few(missing), hint);
  }
  if (!surplus.empty()) {
    std::vector<std::string> known;
    for (const FileTensor& file : manifest.files()) known.push_back(file.name);
    fail(ErrorCode::corrupt_file, "'{}' has {} tensors that the model does not know: {}{}", label_, surplus.size(), first_few(surplus),
         is_experts(manifest, surplus[0]) ? experts : did_you_mean(surplus[0], of_like_length(surplus[0], known)));
  }
  const auto unused = model_->config().find("router_aux_loss_coef");
  if (unused != model_->config().end() && unused->is_number() && *unused != 0) {
    notes_.push_back(fmt::format("'router_aux_loss_coef' is {} in config.json: it is kept, and training adds no such loss", unused->dump()));
    log_info(notes_.back(), {{"path", label_}});
  }
  const auto guesses = model_->config().find("use_mtp");
  if (guesses != model_->config().end() && *guesses == true) {
    notes_.push_back("'use_mtp' is true in config.json: it is kept, and modules for multi-token prediction are not computed");
    log_info(notes_.back(), {{"path", label_}});
  }
  if (of_indexers > 0) {
    notes_.push_back(fmt::format("{} tensors of indexers were passed over: by config.json their layers share the selection of another", of_indexers));
    log_info(notes_.back(), {{"path", label_}});
  }
  for (const auto& [layer, count] : beyond) {
    notes_.push_back(fmt::format("{} tensors of {}{} were passed over: the model has {} layers (multi-token prediction)", count, manifest.layer_prefix(), layer,
                                 model_->facts().layers));
    log_info(notes_.back(), {{"path", label_}});
  }
}

DType ModelReader::file_dtype() const {
  const bool all_bf16 = std::all_of(tensors_.begin(), tensors_.end(),
                                    [](const StoredTensor& t) { return t.file().fp32 || (t.as() == StoredAs::numbers && t.type() == SafetensorsType::bf16); });
  return all_bf16 ? DType::bf16 : DType::f32;
}

std::vector<StoredFormat> ModelReader::kinds() const {
  std::vector<StoredFormat> kinds;
  if (files_.format() != "safetensors") {  // what they hold is decoded when it is read
    for (const auto& [name, type] : files_.types()) {
      StoredFormat& kind = kinds.emplace_back(StoredFormat{type, type.name != "F32" && type.name != "F16" && type.name != "BF16", {}});
      for (const Profile& profile : profiles()) {
        const bool exact = (!profile.bf16_weights && profile.weight_bits == 0) || (type.name == "BF16" && profile.bf16_files_keep_bits());
        if (exact && !profile.study && model_->profile_refusal(profile).empty()) kind.exact_under.push_back(profile.name);
      }
    }
    return kinds;
  }
  std::map<std::string, std::vector<const StoredTensor*>> by_name;
  for (const StoredTensor& tensor : tensors_) by_name[tensor.form().name()].push_back(&tensor);
  for (const auto& [name, tensors] : by_name) {
    StoredFormat& kind = kinds.emplace_back(StoredFormat{{name, tensors[0]->form().bits_a_weight()}, tensors[0]->as() != StoredAs::numbers, {}});
    kind.type.tensors = static_cast<std::int64_t>(tensors.size());
    for (const StoredTensor* tensor : tensors) kind.type.weights += tensor->file().size();
    for (const Profile& profile : profiles())
      if (!profile.study && model_->profile_refusal(profile).empty() &&
          std::none_of(tensors.begin(), tensors.end(), [&](const StoredTensor* t) { return t->is_rounded(model_->manifest(), profile); }))
        kind.exact_under.push_back(profile.name);
  }
  return kinds;
}

std::vector<std::string> ModelReader::rounded_again(const Profile& profile) const {
  std::vector<std::string> lines;
  for (const StoredFormat& kind : kinds()) {
    if (!kind.few_bits || std::find(kind.exact_under.begin(), kind.exact_under.end(), profile.name) != kind.exact_under.end()) continue;
    lines.push_back(fmt::format("weights stored as {} are rounded again under {}; they are computed with as they are under {}", kind.type.name, profile.name,
                                kind.exact_under.empty() ? "none" : fmt::format("{}", fmt::join(kind.exact_under, ", "))));
  }
  return lines;
}

void ModelReader::read(const StoredTensor& tensor, std::vector<float>& values) const {
  values.resize(static_cast<std::size_t>(tensor.file().size()));
  with_context(fmt::format("reading the model '{}'", label_), [&] {
    tensor.read(0, tensor.file().rows(), values.data());
    return 0;
  });
}

void ModelReader::read_rows(const StoredTensor& tensor, const std::function<void(std::span<const float>)>& take) const {
  const std::int64_t rows = tensor.file().rows(), columns = tensor.file().columns();
  const std::int64_t step = tensor.rows_together() > 1 ? tensor.rows_together() : rows_at_once(columns);
  std::vector<float> values;
  for (std::int64_t row = 0; row < rows; row += step) {
    values.resize(static_cast<std::size_t>(std::min(step, rows - row) * columns));
    with_context(fmt::format("reading the model '{}'", label_), [&] {
      tensor.read(row, std::min(step, rows - row), values.data());
      return 0;
    });
    take(values);
  }
}

void ModelReader::scatter(const StoredTensor& tensor, const Manifest& manifest, const FileTensor& file, WeightImages& images) const {
  std::int64_t row = 0;
  read_rows(tensor, [&](std::span<const float> values) {
    const std::int64_t rows = static_cast<std::int64_t>(values.size()) / file.columns();
    manifest.scatter(file, values.data(), images, row, rows);
    row += rows;
    give_way();
  });
}

WeightImages ModelReader::masters() const { return masters_of(*this, model_->manifest(), tensors_); }

std::shared_ptr<const WeightSet> ModelReader::weight_set(Backend& backend, const Profile& profile, std::uint64_t version, WeightPool::Part* part) const {
  return with_context(fmt::format("reading the model '{}'", label_),
                      [&] { return computed_weights(model_->manifest(), tensors_, backend, profile, version, part); });
}

std::string ModelReader::weights_sha256() const { return sha256_of(*this, model_->manifest(), tensors_); }

WeightImages ModelReader::mtp_masters() const {
  check_mtp_copies();
  return masters_of(*this, model_->mtp()->manifest(), mtp_tensors_);
}

std::shared_ptr<const WeightSet> ModelReader::mtp_weight_set(Backend& backend, const Profile& profile, std::uint64_t version) const {
  check_mtp_copies();
  return with_context(fmt::format("reading the model '{}'", label_),
                      [&] { return computed_weights(model_->mtp()->manifest(), mtp_tensors_, backend, profile, version); });
}

std::string ModelReader::mtp_sha256() const { return sha256_of(*this, model_->mtp()->manifest(), mtp_tensors_); }

}  // namespace lockstep
