#include "fleet/model_tensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <numeric>

#include "base/error.h"
#include "numerics/element.h"
#include "numerics/isa/word_classes.h"

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

namespace {
constexpr std::int64_t kScanned = 4096;  // elements whose differences are looked for at once; a multiple of 64

DType element_type(SafetensorsType type) { return type == SafetensorsType::bf16 ? DType::bf16 : DType::f32; }

// Calls f(element, its new bits) for every element in which two arrays differ.
template <class Word, class F>
void each_difference(std::string_view before, std::string_view now, const F& f) {
  constexpr std::int64_t width = sizeof(Word), bytes = kScanned * width;
  const auto size = std::ssize(now);
  std::vector<char> last_before, last_now;  // filled up with zeros
  std::array<std::uint64_t, kScanned / 64> masks{};
  for (std::int64_t first = 0; first < size; first += bytes) {
    const char *a = before.data() + first, *b = now.data() + first;
    if (const std::int64_t left = size - first; left < bytes) {
      last_before.assign(bytes, '\0'), last_now.assign(bytes, '\0');
      std::memcpy(last_before.data(), a, static_cast<std::size_t>(left));
      std::memcpy(last_now.data(), b, static_cast<std::size_t>(left));
      a = last_before.data(), b = last_now.data();
    }
    difference_masks(a, b, width, kScanned / 64, masks.data());
    for (std::int64_t block = 0; block < kScanned / 64; ++block)
      for (std::uint64_t hits = masks[static_cast<std::size_t>(block)]; hits != 0; hits &= hits - 1) {
        const std::int64_t at = block * 64 + std::countr_zero(hits);
        Word word;
        std::memcpy(&word, b + at * width, sizeof word);
        f(first / width + at, word);
      }
  }
}
}  // namespace

void ModelTensors::check_bytes(std::size_t i, std::string_view bytes, SafetensorsType type) const {
  if (type != SafetensorsType::f32 && type != SafetensorsType::bf16)
    fail(ErrorCode::unsupported, "tensor {} is {}, allowed are BF16 and F32", quoted_name(shapes_[i].name), safetensors_type_name(type));
  if (std::ssize(bytes) != files_[i]->size() * safetensors_type_bytes(type))
    fail(ErrorCode::corrupt_file, "tensor {} has {} bytes", quoted_name(shapes_[i].name), bytes.size());
}

std::string ModelTensors::bytes(std::size_t i, const std::map<ParameterId, ParameterBits>& parameters, SafetensorsType type) const {
  if (type != SafetensorsType::f32 && type != SafetensorsType::bf16)
    fail(ErrorCode::unsupported, "tensor {} is {}, allowed are BF16 and F32", quoted_name(shapes_[i].name), safetensors_type_name(type));
  return file_bytes(manifest_, *files_[i], element_type(type), parameters);
}

void ModelTensors::each_change(std::size_t i, std::string_view before, std::string_view now, SafetensorsType type, std::size_t most,
                               const std::function<void(std::map<ParameterId, ParameterChanges>)>& take) const {
  if (!profile_) fail(ErrorCode::internal, "tensor {} is an adapter's, whose changes have no places", quoted_name(shapes_[i].name));
  check_bytes(i, before, type);
  check_bytes(i, now, type);
  std::vector<std::int64_t> positions;
  std::vector<std::uint32_t> bits;
  const auto give = [&] {
    std::map<ParameterId, ParameterChanges> some;
    add_changes(manifest_, *profile_, *files_[i], element_type(type), positions, bits, some);
    positions.clear(), bits.clear();
    take(std::move(some));
  };
  const auto change = [&](std::int64_t position, std::uint32_t word) {
    positions.push_back(position);
    bits.push_back(word);
    if (positions.size() == most) give();
  };
  if (type == SafetensorsType::bf16) each_difference<std::uint16_t>(before, now, change);
  else each_difference<std::uint32_t>(before, now, change);
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

std::map<ParameterId, ParameterBits> read_parameters(Backend& backend, const std::vector<Buffer>& buffers, const std::vector<ParameterId>& which) {
  std::map<ParameterId, ParameterBits> bits;
  for (const ParameterId id : which) bits.emplace(id, read_bits(backend, buffers[static_cast<std::size_t>(id)]));
  return bits;
}

}  // namespace lockstep
