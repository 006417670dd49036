#include "checkpoint/gguf_model.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/gguf_tokenizer.h"
#include "checkpoint/json_file.h"

namespace lockstep {

namespace {
SafetensorsType widened_from(const GgufType& type) {
  if (type.name == "BF16") return SafetensorsType::bf16;
  return type.name == "F16" ? SafetensorsType::f16 : SafetensorsType::f32;
}
}  // namespace

GgufTensors::GgufTensors(GgufFile file) : file_(std::move(file)) {
  const Json config = gguf_config(file_);
  const GgufArchitecture& architecture = gguf_architecture(file_);
  for (const GgufTensor& tensor : file_.tensors()) {
    if (tensor.name == kGgufRopeFactors) continue;
    const GgufPlace place = gguf_place(architecture, tensor.name);
    if (place.rows == GgufRows::experts) {
      const std::int64_t experts = config.value("num_experts", std::int64_t{0});
      if (tensor.shape.size() != 3 || tensor.shape[0] != experts)
        fail(ErrorCode::corrupt_file, "'{}': tensor {} has the shape {}, and the model has {} experts", label(), quoted_name(tensor.name),
             shape_text(tensor.shape), experts);
      for (std::int64_t e = 0; e < experts; ++e)
        add(tensor, fmt::format(fmt::runtime(place.name), e), {tensor.shape[1], tensor.shape[2]}, {&tensor, e * tensor.shape[1] * tensor.shape[2]});
      continue;
    }
    Source source{&tensor};
    if (place.rows != GgufRows::as_they_are) {
      source.heads = config.at(place.rows == GgufRows::paired_queries ? "num_attention_heads" : "num_key_value_heads").get<std::int64_t>();
      if (tensor.shape[0] % (2 * source.heads))
        fail(ErrorCode::corrupt_file, "'{}': tensor {} has {} rows, allowed are pairs of rows for {} heads", label(), quoted_name(tensor.name), tensor.shape[0],
             source.heads);
    }
    add(tensor, place.name.empty() ? tensor.name : place.name, tensor.shape, source);
  }
  index_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!index_.emplace(tensors_[i].name, i).second) fail(ErrorCode::corrupt_file, "'{}': two tensors are {}", label(), quoted_name(tensors_[i].name));
}

void GgufTensors::add(const GgufTensor& tensor, std::string name, std::vector<std::int64_t> shape, Source source) {
  SafetensorsTensor& added = tensors_.emplace_back(SafetensorsTensor{std::move(name), widened_from(*tensor.type), std::move(shape)});
  added.end = static_cast<std::uint64_t>(safetensors_type_bytes(added.type));
  for (const std::int64_t size : added.shape) added.end *= static_cast<std::uint64_t>(size);
  sources_.push_back(source);
}

const SafetensorsTensor* GgufTensors::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void GgufTensors::read(const SafetensorsTensor& tensor, std::span<float> values, std::int64_t first) const {
  const Source& source = sources_[static_cast<std::size_t>(&tensor - tensors_.data())];
  if (source.heads == 0) return file_.read(*source.tensor, values, source.first + first);
  const std::int64_t rows = tensor.shape[0], columns = tensor.elements() / rows, head = rows / source.heads;
  const auto count = static_cast<std::int64_t>(values.size());
  if (first % columns || count % columns)
    fail(ErrorCode::internal, "'{}': elements {} to {} of tensor {} were asked for, whose rows of {} are paired", label(), first, first + count,
         quoted_name(tensor.name), columns);
  for (std::int64_t i = 0; i < count / columns; ++i) {
    const std::int64_t row = first / columns + i, in_head = row % head, from = row - in_head + in_head % (head / 2) * 2 + in_head / (head / 2);
    file_.read(*source.tensor, values.subspan(static_cast<std::size_t>(i * columns), static_cast<std::size_t>(columns)), from * columns);
  }
}

void GgufTensors::read_bytes(const SafetensorsTensor& tensor, std::span<std::uint8_t>, std::uint64_t) const {
  fail(ErrorCode::unsupported, "'{}': tensor {} is read as numbers alone", label(), quoted_name(tensor.name));
}

std::vector<std::int64_t> GgufTensors::read_integers(const SafetensorsTensor& tensor) const {
  fail(ErrorCode::unsupported, "'{}': tensor {} is read as numbers alone", label(), quoted_name(tensor.name));
}

std::string GgufTensors::format() const { return fmt::format("GGUF version {}", file_.version()); }

void GgufTensors::count_types(StoredTypes& types) const {
  for (const GgufTensor& tensor : file_.tensors()) {
    const std::string name(tensor.type->name);
    StoredType& type = types.try_emplace(name, StoredType{name, tensor.type->bits_a_weight()}).first->second;
    ++type.tensors;
    type.weights += tensor.elements();
  }
}

namespace {
struct SmallFile {
  std::string_view name;
  bool (*there)(const GgufFile&);
  std::string (*make)(const GgufFile&);
};

const SmallFile* small_file(std::string_view name) {
  static constexpr auto always = [](const GgufFile&) { return true; };
  static const std::vector<SmallFile> files = {
      {"config.json", always, [](const GgufFile& file) { return json_text(gguf_config(file)); }},
      {"generation_config.json", [](const GgufFile& file) { return !gguf_generation_config(file).empty(); },
       [](const GgufFile& file) { return json_text(gguf_generation_config(file)); }},
      {"tokenizer.json", has_gguf_tokenizer, gguf_tokenizer},
      {"tokenizer_config.json", has_gguf_tokenizer, [](const GgufFile& file) { return json_text(gguf_tokenizer_config(file)); }},
      {"chat_template.jinja", [](const GgufFile& file) { return gguf_chat_template(file).has_value(); },
       [](const GgufFile& file) { return gguf_chat_template(file).value_or(""); }},
  };
  const auto found = std::find_if(files.begin(), files.end(), [&](const SmallFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}
}  // namespace

bool GgufFolder::has(const std::string& name) const {
  const SmallFile* file = small_file(name);
  return file && file->there(file_);
}

std::string GgufFolder::read(const std::string& name, std::size_t most_bytes) const {
  if (!has(name)) fail(ErrorCode::not_found, "'{}' has nothing that a folder's {} says", label(), name);
  std::string text = small_file(name)->make(file_);
  if (text.size() > most_bytes) fail(ErrorCode::resource_exhausted, "{} is longer than the {} bytes allowed", place(name), most_bytes);
  return text;
}

std::string GgufFolder::place(const std::string& name) const { return fmt::format("{} ({})", label(), name); }

}  // namespace lockstep
