#include "fleet/model_tensors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "base/error.h"
#include "numerics/element.h"

namespace lockstep {

ModelTensors::ModelTensors(const Manifest& manifest, const Profile& profile) : manifest_(manifest) {
  for (const Parameter& p : manifest.parameters())
    if (compute_dtype(p, profile) == DType::u8)
      fail(ErrorCode::unsupported, "profile '{}' quantises weights, which no snapshot of all weights holds; allowed are adapters over them", profile.name);
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

std::vector<ModelTensors::Group> ModelTensors::groups(const std::function<bool(std::size_t)>& wanted, std::int64_t most) const {
  std::vector<ParameterId> root(manifest_.parameters().size());
  std::iota(root.begin(), root.end(), 0);
  const auto root_of = [&](ParameterId id) {
    while (root[static_cast<std::size_t>(id)] != id) id = root[static_cast<std::size_t>(id)];
    return id;
  };
  std::vector<std::size_t> tensors;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    if (!wanted(i)) continue;
    tensors.push_back(i);
    for (const ParameterId id : parameters_[i]) root[static_cast<std::size_t>(root_of(id))] = root_of(*parameters_[i].begin());
  }
  std::map<ParameterId, Group> by_root;
  std::map<ParameterId, std::set<ParameterId>> members;
  for (const std::size_t i : tensors) {
    const ParameterId at = root_of(*parameters_[i].begin());
    by_root[at].tensors.push_back(i);
    members[at].insert(parameters_[i].begin(), parameters_[i].end());
  }
  std::vector<Group> groups;
  std::int64_t room = 0;
  for (const auto& [at, group] : by_root) {
    std::int64_t weights = 0;
    for (const ParameterId id : members[at]) weights += manifest_.parameter(id).size();
    if (groups.empty() || weights > room) {
      groups.emplace_back();
      room = most;
    }
    room -= weights;
    groups.back().parameters.insert(groups.back().parameters.end(), members[at].begin(), members[at].end());
    groups.back().tensors.insert(groups.back().tensors.end(), group.tensors.begin(), group.tensors.end());
  }
  return groups;
}

std::string ModelTensors::bytes(std::size_t i, const WeightImages& images, SafetensorsType type) const {
  std::vector<float> values(static_cast<std::size_t>(files_[i]->size()));
  manifest_.gather(*files_[i], images, values.data());
  std::string bytes(values.size() * static_cast<std::size_t>(safetensors_type_bytes(type)), '\0');
  if (type == SafetensorsType::f32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  } else if (type == SafetensorsType::bf16) {
    for (std::size_t n = 0; n < values.size(); ++n) {
      const Bf16 rounded = round_to_bf16(values[n]);
      std::memcpy(bytes.data() + n * sizeof rounded, &rounded, sizeof rounded);
    }
  } else {
    fail(ErrorCode::unsupported, "tensor {} is {}, allowed are BF16 and F32", quoted_name(shapes_[i].name), safetensors_type_name(type));
  }
  return bytes;
}

void ModelTensors::put(std::size_t i, std::string_view bytes, SafetensorsType type, WeightImages& images) const {
  std::vector<float> values(static_cast<std::size_t>(files_[i]->size()));
  if (type != SafetensorsType::f32 && type != SafetensorsType::bf16)
    fail(ErrorCode::unsupported, "tensor {} is {}, allowed are BF16 and F32", quoted_name(shapes_[i].name), safetensors_type_name(type));
  if (bytes.size() != values.size() * static_cast<std::size_t>(safetensors_type_bytes(type)))
    fail(ErrorCode::corrupt_file, "tensor {} has {} bytes", quoted_name(shapes_[i].name), bytes.size());
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

WeightImages read_parameters(Backend& backend, const std::vector<Buffer>& buffers, const std::vector<ParameterId>& which) {
  WeightImages images(buffers.size());
  for (const ParameterId id : which) images[static_cast<std::size_t>(id)] = backend.stream().read(buffers[static_cast<std::size_t>(id)].view()).get();
  return images;
}

}  // namespace lockstep
