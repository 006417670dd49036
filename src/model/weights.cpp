#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"

namespace lockstep {

DType compute_dtype(const Parameter& parameter, const Profile& profile) {
  return profile.bf16_weights && parameter.trained ? DType::bf16 : DType::f32;
}

Buffer allocate_parameter(Backend& backend, const Parameter& p, DType dtype, MemoryCategory category) {
  if (p.layout == ParameterLayout::packed) return backend.device().allocate(dtype, 1, p.size(), category);
  return backend.device().allocate(dtype, p.outputs, p.inputs, category);
}

std::shared_ptr<const WeightSet> make_weight_set(Backend& backend, const Manifest& manifest, const WeightImages& images,
                                                 const Profile& profile, std::uint64_t version) {
  auto set = std::make_shared<WeightSet>();
  set->version = version;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    set->parameters.push_back(allocate_parameter(backend, p, compute_dtype(p, profile), MemoryCategory::weights));
    backend.stream().write(set->parameters.back().view(), images[i]);
  }
  return set;
}

PackedWeight packed_weight(const Manifest& manifest, const WeightSet& weights, ParameterId id, const Profile& profile) {
  const Parameter& p = manifest.parameter(id);
  return {weights.parameters[static_cast<std::size_t>(id)].view(), p.outputs, p.inputs, p.count, profile.maximum_leaves};
}

std::string weights_sha256(const Manifest& manifest, const WeightImages& images) {
  std::vector<const FileTensor*> files;
  for (const FileTensor& file : manifest.files()) files.push_back(&file);
  std::sort(files.begin(), files.end(), [](const FileTensor* a, const FileTensor* b) { return a->name < b->name; });
  Sha256 hash;
  std::vector<float> values;
  for (const FileTensor* file : files) {
    values.resize(static_cast<std::size_t>(file->size()));
    manifest.gather(*file, images, values.data());
    hash.update(file->name + '\0' + "F32" + '\0' + fmt::format("{}", fmt::join(file->shape, "x")) + '\0');
    hash.update(values.data(), values.size() * sizeof(float));
  }
  return hash.hex();
}

NamedUniform::NamedUniform(std::uint64_t seed, const std::string& name) : seed_(seed) {
  const std::string digest = sha256_hex(name);
  const auto word = [&](std::size_t at) {  // little-endian
    std::uint32_t w = 0;
    for (std::size_t byte = 0; byte < 4; ++byte)
      w |= static_cast<std::uint32_t>(std::stoul(digest.substr(at + 2 * byte, 2), nullptr, 16)) << (8 * byte);
    return w;
  };
  word0_ = word(0);
  word1_ = word(8);
}

float NamedUniform::operator()(std::uint64_t index) {
  if (index / 4 != block_) {
    block_ = index / 4;
    const Philox::Words words = Philox::generate(seed_, {static_cast<std::uint32_t>(block_), word0_, word1_, 0});
    std::copy(words.begin(), words.end(), words_);
  }
  return static_cast<float>(static_cast<std::int32_t>(words_[index % 4] >> 8)) * 0x1p-23f - 1.0f;
}

WeightImages initial_weights(const Manifest& manifest, std::uint64_t seed, double deviation) {
  WeightImages images(manifest.parameters().size());
  const float amplitude = static_cast<float>(deviation * std::sqrt(3.0));
  std::vector<float> values;
  for (const FileTensor& file : manifest.files()) {
    values.assign(static_cast<std::size_t>(file.size()), 0.0f);
    const Parameter& p = manifest.parameter(file.pieces[0].parameter);
    if (file.shape.size() == 2) {
      NamedUniform uniform(seed, file.name);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = uniform(i) * amplitude;
    } else if (p.trained && !file.name.ends_with(".bias")) {
      std::fill(values.begin(), values.end(), 1.0f);
    }
    manifest.scatter(file, values.data(), images);
  }
  return images;
}

}  // namespace lockstep
