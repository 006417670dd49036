#include "checkpoint/model_reader.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/hub_name.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_source.h"
#include "checkpoint/reading_memory.h"
#include "model/compute_copy.h"
#include "model/low_bit_weights.h"
#include "model/value_head.h"
#include "model/weights_hash.h"
#include "numerics/int4_words.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
std::vector<std::string> of_like_length(const std::string& name, const std::vector<std::string>& names) {
  std::vector<std::string> like;
  for (const std::string& other : names)
    if (like.size() < 10'000 && other.size() <= name.size() + 3 && name.size() <= other.size() + 3) like.push_back(other);
  return like;
}

// Some rows of one piece of a tensor, and where they belong. `by_outputs`: of a transposed piece, outputs of the matrix, which its file has as rows.
struct Part {
  const StoredTensor* tensor;
  const Piece* piece;
  std::int64_t row, rows;  // of the piece
  bool by_outputs = false;
};

// Rows of the tensor, of those columns that are the piece's.
void read_own(const StoredTensor& tensor, const Piece& piece, std::int64_t row, std::int64_t rows, float* values) {
  const std::int64_t columns = tensor.file().columns();
  if (own_columns(piece, columns) == columns) return tensor.read(row, rows, values);
  std::vector<float> all(static_cast<std::size_t>(rows * columns));
  tensor.read(row, rows, all.data());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = piece.column_begin; c < columns; c += piece.column_step) *values++ = all[static_cast<std::size_t>(r * columns + c)];
}

ConvertedPart convert(const Part& part, const Parameter& p, const Profile& profile) {
  const StoredTensor& t = *part.tensor;
  const std::int64_t from = part.piece->row_begin + part.row, columns = t.file().columns();
  if (!part.piece->transposed && part.piece->column_step == 1 && t.holds_int4() && computes_with_int4(p, profile)) {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(part.rows * int4_words(columns)));
    std::vector<Bf16> scales(static_cast<std::size_t>(part.rows * QuantisedShape{part.rows, columns, 4}.groups()));
    t.read_int4(from, part.rows, words.data(), scales.data());
    return convert_int4(p, profile, part.piece->item, part.row, part.rows, words.data(), scales.data());
  }
  if (part.by_outputs) {
    std::vector<float> values(static_cast<std::size_t>(part.rows * p.inputs));
    t.read_outputs(part.piece->row_begin / p.inputs, part.piece->column_begin + part.row * part.piece->column_step, part.piece->column_step, part.rows,
                   values.data());
    return convert_rows(p, profile, part.piece->item, part.row, part.rows, values.data());
  }
  // All rows of a matrix belong to each of its outputs, and stand in memory some at a time.
  if (part.piece->transposed)
    return convert_transposed(p, profile, part.piece->item, rows_at_once(columns),
                              [&](std::int64_t input, std::int64_t count, float* values) { read_own(t, *part.piece, from + input, count, values); });
  std::vector<float> values(static_cast<std::size_t>(part.rows * own_columns(*part.piece, columns)));
  read_own(t, *part.piece, from, part.rows, values.data());
  return convert_rows(p, profile, part.piece->item, part.row, part.rows, values.data());
}

std::vector<Part> parts_of(const StoredTensor& tensor, const Piece& piece) {
  std::vector<Part> parts;
  if (piece.transposed && tensor.as() == StoredAs::mxfp4) {  // piece.rows: the inputs
    const std::int64_t outputs = own_columns(piece, tensor.file().columns()), at_once = rows_at_once(piece.rows);
    for (std::int64_t row = 0; row < outputs; row += at_once) parts.push_back({&tensor, &piece, row, std::min(at_once, outputs - row), true});
    return parts;
  }
  const std::int64_t step = piece.transposed ? piece.rows : rows_at_once(tensor.file().columns());
  for (std::int64_t row = 0; row < piece.rows; row += step) parts.push_back({&tensor, &piece, row, std::min(step, piece.rows - row)});
  return parts;
}
}  // namespace

std::string ModelReader::first_few(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 3); ++i) text += (i ? ", " : "") + quoted_name(names[i]);
  return text + (names.size() > 3 ? ", ..." : "");
}

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
  for (const std::string& name : files_.names()) {
    if (used.contains(name)) continue;
    const std::int64_t layer = manifest.layer_passed_over(name);
    if (layer >= 0) ++beyond[layer];
    else surplus.push_back(name);
  }
  if (!missing.empty()) {
    const std::string hint = did_you_mean(missing[0], of_like_length(missing[0], surplus));
    fail(ErrorCode::corrupt_file, "'{}' lacks {} of {} tensors: {}{}", label_, missing.size(), manifest.files().size(), first_few(missing), hint);
  }
  if (!surplus.empty()) {
    std::vector<std::string> known;
    for (const FileTensor& file : manifest.files()) known.push_back(file.name);
    fail(ErrorCode::corrupt_file, "'{}' has {} tensors that the model does not know: {}{}", label_, surplus.size(), first_few(surplus),
         did_you_mean(surplus[0], of_like_length(surplus[0], known)));
  }
  const auto unused = model_->config().find("router_aux_loss_coef");
  if (unused != model_->config().end() && unused->is_number() && *unused != 0) {
    notes_.push_back(fmt::format("'router_aux_loss_coef' is {} in config.json: it is kept, and training adds no such loss", unused->dump()));
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
      for (const Profile& profile : profiles())
        if (kind.few_bits && !profile.study && !profile.bf16_weights && profile.weight_bits == 0 && model_->profile_refusal(profile).empty())
          kind.exact_under.push_back(profile.name);
    }
    return kinds;
  }
  std::map<std::string, std::vector<const StoredTensor*>> by_name;
  for (const StoredTensor& tensor : tensors_) by_name[tensor.type_name()].push_back(&tensor);
  for (const auto& [name, tensors] : by_name) {
    StoredFormat& kind = kinds.emplace_back(StoredFormat{{name, tensors[0]->bits_a_weight()}, tensors[0]->as() != StoredAs::numbers, {}});
    kind.type.tensors = static_cast<std::int64_t>(tensors.size());
    for (const StoredTensor* tensor : tensors) kind.type.weights += tensor->file().size();
    if (!kind.few_bits) continue;
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

WeightImages ModelReader::masters_of(const Manifest& manifest, const Tensors& tensors) const {
  WeightImages masters(manifest.parameters().size());
  std::vector<float> values;
  for (const StoredTensor& tensor : tensors) {
    read(tensor, values);
    manifest.scatter(tensor.file(), values.data(), masters);
  }
  return masters;
}

std::shared_ptr<const WeightSet> ModelReader::weight_set_of(const Manifest& manifest, const Tensors& tensors, Backend& backend, const Profile& profile,
                                                            std::uint64_t version) const {
  const std::vector<Parameter>& parameters = manifest.parameters();
  std::vector<std::vector<Part>> parts(parameters.size());
  for (const StoredTensor& tensor : tensors)
    for (const Piece& piece : tensor.file().pieces) {
      auto& of = parts[static_cast<std::size_t>(piece.parameter)];
      for (const Part& part : parts_of(tensor, piece)) of.push_back(part);
    }
  auto set = std::make_shared<WeightSet>();
  set->version = version;
  // On a deferred device the threads may be at work for queued kernels.
  const bool alone = backend.stream().deferred();
  const auto at_once = static_cast<std::size_t>(alone ? 1 : std::min<std::int64_t>(backend.device().threads().threads(), kMostReaders));
  with_context(fmt::format("reading the model '{}'", label_), [&] {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& p = parameters[i];
      set->parameters.push_back(allocate_compute_copy(backend, p, profile));
      if (backend.device().counting()) continue;
      for (std::size_t first = 0; first < parts[i].size(); first += at_once) {
        std::vector<ConvertedPart> converted(std::min(at_once, parts[i].size() - first));
        const auto work = [&](std::int64_t j) { converted[static_cast<std::size_t>(j)] = convert(parts[i][first + static_cast<std::size_t>(j)], p, profile); };
        if (alone) work(0);
        else backend.device().threads().run(static_cast<std::int64_t>(converted.size()), work);
        for (const ConvertedPart& part : converted) write_part(backend, p, profile, set->parameters.back(), part);
        if (alone) backend.stream().synchronize();
      }
    }
    return 0;
  });
  return set;
}

std::string ModelReader::sha256_of(const Manifest& manifest, const Tensors& tensors) const {
  std::map<std::string_view, const StoredTensor*> by_name;
  for (const StoredTensor& tensor : tensors) by_name.emplace(tensor.file().name, &tensor);
  WeightsHash hash;
  for (const FileTensor* file : files_by_name(manifest)) {
    hash.tensor(*file);
    read_rows(*by_name.at(file->name), [&](std::span<const float> values) { hash.values(values); });
  }
  return hash.hex();
}

// A matrix of its own, as kernels have it: no table, nothing cut or transposed.
bool ModelReader::packs(const StoredTensor& tensor, const Profile& profile) const {
  const FileTensor& file = tensor.file();
  if (file.pieces.size() != 1 || file.shape.size() != 2 || !file.name.ends_with(".weight")) return false;
  const Parameter& p = manifest_of(tensor).parameter(file.pieces[0].parameter);
  return !p.tied && !file.pieces[0].transposed && file.pieces[0].column_step == 1 && file.pieces[0].rows == file.rows() && computes_with_int4(p, profile);
}

PackedMatrix ModelReader::read_packed(const StoredTensor& tensor, const Profile& profile) const {
  const FileTensor& file = tensor.file();
  const Parameter& p = manifest_of(tensor).parameter(file.pieces[0].parameter);
  const std::int64_t columns = file.columns(), groups = QuantisedShape{1, columns, 4}.groups();
  PackedMatrix packed{std::vector<std::uint32_t>(static_cast<std::size_t>(file.rows() * int4_words(columns))),
                      std::vector<Bf16>(static_cast<std::size_t>(file.rows() * groups))};
  for (const Part& part : parts_of(tensor, file.pieces[0]))
    panels_to_words(convert(part, p, profile).bytes.data(), {part.rows, columns, 4}, packed.words.data() + part.row * int4_words(columns),
                    packed.scales.data() + part.row * groups);
  return packed;
}

void ModelReader::read_computed(const StoredTensor& tensor, const Profile& profile, std::vector<float>& values) const {
  read(tensor, values);
  const FileTensor& file = tensor.file();
  for (const Piece& piece : file.pieces) {
    const Parameter& p = manifest_of(tensor).parameter(piece.parameter);
    if (!is_low_bit_format(weight_bits(p, profile))) continue;
    for (const Part& part : parts_of(tensor, piece)) {
      const ConvertedPart converted = convert(part, p, profile);
      const LowBitShape shape{converted.rows, p.inputs, low_bit_format_of(weight_bits(p, profile))};
      Parameter whole = p;  // of these rows alone: offset() says where its panels have an element
      whole.outputs = converted.rows;
      std::vector<float> image(static_cast<std::size_t>(whole.item_size()));
      decode_panels(converted.bytes.data(), shape, image.data());
      const auto value = [&](std::int64_t r, std::int64_t c) -> float& {  // of the piece
        return values[static_cast<std::size_t>((piece.row_begin + r) * file.columns() + piece.column_begin + c * piece.column_step)];
      };
      for (std::int64_t n = 0; n < converted.rows; ++n)
        for (std::int64_t k = 0; k < p.inputs; ++k) {
          const float number = image[static_cast<std::size_t>(whole.offset(0, n, k))];
          if (part.by_outputs) value(k, part.row + n) = number;
          else if (piece.transposed) value(part.row + k, n) = number;
          else value(part.row + n, k) = number;
        }
    }
  }
}

}  // namespace lockstep
