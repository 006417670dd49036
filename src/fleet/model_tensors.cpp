#include "fleet/model_tensors.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "numerics/element.h"
#include "sync/element_changes.h"

namespace lockstep {

ModelTensors::ModelTensors(const Manifest& manifest, const Profile& profile) : manifest_(manifest), profile_(&profile) {
  for (const Parameter& p : manifest.parameters())
    if (compute_dtype(p, profile) == DType::u8)
      fail(ErrorCode::unsupported,
           "profile '{}' computes with weights in few bits, of which no snapshot has the bytes; allowed are all weights under 'cpu-bf16w' or 'cpu-f32', "
           "and adapters over a base in few bits",
           profile.name);
  list([&](const Parameter& p) { return compute_dtype(p, profile) == DType::bf16; });
}

ModelTensors::ModelTensors(const Manifest& manifest) : manifest_(manifest) {
  list([](const Parameter&) { return false; });
}

void ModelTensors::list(const std::function<bool(const Parameter&)>& is_bf16) {
  for (const FileTensor& file : manifest_.files()) files_.push_back(&file);
  std::sort(files_.begin(), files_.end(), [](const FileTensor* a, const FileTensor* b) { return a->name < b->name; });
  for (const FileTensor* file : files_) {
    std::set<ParameterId> parameters;
    bool bf16 = true;
    for (const Piece& piece : file->pieces) {
      parameters.insert(piece.parameter);
      bf16 = bf16 && is_bf16(manifest_.parameter(piece.parameter));
    }
    const SafetensorsType type = bf16 ? SafetensorsType::bf16 : SafetensorsType::f32;
    shapes_.push_back({file->name, type, file->shape, static_cast<std::uint64_t>(file->size() * safetensors_type_bytes(type))});
    parameters_.push_back(std::move(parameters));
  }
}

std::size_t ModelTensors::find(std::string_view name) const {
  const auto found = std::lower_bound(shapes_.begin(), shapes_.end(), name, [](const TensorShape& shape, std::string_view n) { return shape.name < n; });
  return found != shapes_.end() && found->name == name ? static_cast<std::size_t>(found - shapes_.begin()) : shapes_.size();
}

bool ModelTensors::is_alias(std::string_view name) const {
  return std::any_of(manifest_.aliases().begin(), manifest_.aliases().end(), [&](const auto& alias) { return alias.first == name; });
}

namespace {
DType element_type(SafetensorsType type) { return type == SafetensorsType::bf16 ? DType::bf16 : DType::f32; }
}  // namespace

void ModelTensors::check_bytes(std::size_t i, std::string_view bytes, SafetensorsType type) const {
  if (type != SafetensorsType::f32 && type != SafetensorsType::bf16)
    fail(ErrorCode::unsupported, "tensor {} is {}, allowed are BF16 and F32", quoted_name(shapes_[i].name), safetensors_type_name(type));
  if (std::ssize(bytes) != files_[i]->size() * safetensors_type_bytes(type))
    fail(ErrorCode::corrupt_file, "tensor {} has {} bytes", quoted_name(shapes_[i].name), bytes.size());
}

TensorParts ModelTensors::parts(std::size_t i, SafetensorsType type) const {
  if (type != SafetensorsType::f32 && type != SafetensorsType::bf16)
    fail(ErrorCode::unsupported, "tensor {} is {}, allowed are BF16 and F32", quoted_name(shapes_[i].name), safetensors_type_name(type));
  return {manifest_, *files_[i], element_type(type)};
}

void ModelTensors::each_change(std::size_t i, std::int64_t first, std::string_view before, std::string_view now, SafetensorsType type, std::size_t most,
                               const std::function<void(std::map<ParameterId, ParameterChanges>)>& take) const {
  if (!profile_) fail(ErrorCode::internal, "tensor {} is an adapter's, whose changes have no places", quoted_name(shapes_[i].name));
  std::vector<std::int64_t> positions;
  std::vector<std::uint32_t> bits;
  const auto give = [&] {
    std::map<ParameterId, ParameterChanges> some;
    add_changes(manifest_, *profile_, *files_[i], element_type(type), positions, bits, some);
    positions.clear(), bits.clear();
    take(std::move(some));
  };
  each_difference(static_cast<int>(safetensors_type_bytes(type)), before, now, [&](std::int64_t position, std::uint32_t word) {
    positions.push_back(first + position);
    bits.push_back(word);
    if (positions.size() == most) give();
  });
  if (!positions.empty()) give();
}

void ModelTensors::put(std::size_t i, std::string_view bytes, SafetensorsType type, WeightImages& images) const {
  std::vector<float> values(static_cast<std::size_t>(files_[i]->size()));
  check_bytes(i, bytes, type);
  if (type == SafetensorsType::f32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    for (std::size_t n = 0; n < values.size(); ++n) {
      Bf16 stored;
      std::memcpy(&stored, bytes.data() + n * sizeof stored, sizeof stored);
      values[n] = widen(stored);
    }
  }
  manifest_.scatter(*files_[i], values.data(), images);
}

}  // namespace lockstep
