#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "kernels/kernel_parts.h"
#include "model/low_bit_weights.h"
#include "model/weights_hash.h"

namespace lockstep {

std::uint64_t WeightSet::next_identity() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

void check_trainable(const Profile& profile) {
  if (profile.trains_all_weights()) return;
  if (is_low_bit_format(profile.weight_bits))
    fail(ErrorCode::unsupported,
         "profile '{}' has frozen low-bit weights ({}): adapters (--adapter-rank of 1 or more) train over them; train all parameters "
         "under cpu-bf16w, cpu-f32, cpu-int4-qat, cpu-fp8 or cpu-mxfp8",
         profile.name, low_bit_format_name(low_bit_format_of(profile.weight_bits)));
  fail(ErrorCode::unsupported,
       "profile '{}' is for serving alone: its weights are {}-bit integers, which no training step can move; train under cpu-bf16w or cpu-f32", profile.name,
       profile.weight_bits);
}

Buffer allocate_parameter(Backend& backend, const Parameter& p, DType dtype, MemoryCategory category) {
  if (p.layout == ParameterLayout::packed) return backend.device().allocate(dtype, 1, p.size(), category);
  return backend.device().allocate(dtype, p.table_rows(), p.inputs, category);
}

Buffer make_compute_copy(Backend& backend, const Parameter& p, const Profile& profile, const std::vector<float>& image) {
  const DType dtype = compute_dtype(p, profile);
  if (dtype != DType::u8) {
    Buffer copy = allocate_parameter(backend, p, dtype, MemoryCategory::weights);
    backend.stream().write(copy.view(), image);
    return copy;
  }
  const int bits = weight_bits(p, profile);
  const std::int64_t item = item_bytes(p, profile), panels = (p.outputs + 15) / 16;
  Buffer copy = backend.device().allocate(DType::u8, p.count, item, MemoryCategory::weights);
  if (backend.device().counting()) return copy;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(p.count * item));
  constexpr std::int64_t kPanels = 16;  // whole blocks of fp8
  constexpr std::int64_t kAdds = 64;    // that take as long as one weight
  const std::int64_t blocks = (panels + kPanels - 1) / kPanels;
  const auto quantise = [&](std::int64_t i) {
    const std::int64_t g = i / blocks, panel = i % blocks * kPanels, end = std::min(panels, panel + kPanels);
    const float* from = image.data() + g * p.item_size();
    std::uint8_t* to = bytes.data() + g * item;
    if (is_low_bit_format(bits)) encode_panels(from, low_bit_shape(p, profile), to, panel, end);
    else quantise_panels(from, {p.outputs, p.inputs, bits}, to, panel, end);
  };
  // On a deferred device the threads may be at work for queued kernels.
  if (!backend.stream().deferred()) run_in_parts(backend.device().threads(), p.count * blocks, kAdds * kPanels * 16 * p.inputs, quantise);
  else
    for (std::int64_t i = 0; i < p.count * blocks; ++i) quantise(i);
  backend.stream().write(copy.view(), bytes);
  return copy;
}

std::shared_ptr<const WeightSet> make_weight_set(Backend& backend, const Manifest& manifest, const WeightImages& images, const Profile& profile,
                                                 std::uint64_t version) {
  auto set = std::make_shared<WeightSet>();
  set->version = version;
  for (std::size_t i = 0; i < images.size(); ++i) set->parameters.push_back(make_compute_copy(backend, manifest.parameters()[i], profile, images[i]));
  return set;
}

std::vector<float> weight_image(Backend& backend, const Parameter& p, const Buffer& buffer, const Profile& profile) {
  const View& copy = buffer.view();
  if (backend.device().counting()) return {};
  if (copy.dtype != DType::u8) return backend.stream().read(copy).get();
  const int bits = weight_bits(p, profile);
  const std::int64_t item = item_bytes(p, profile);
  const std::vector<std::uint8_t> bytes = backend.stream().read_bytes(copy).get();
  std::vector<float> image(static_cast<std::size_t>(p.size()));
  for (std::int64_t g = 0; g < p.count; ++g) {
    float* to = image.data() + g * p.item_size();
    if (is_low_bit_format(bits)) decode_panels(bytes.data() + g * item, low_bit_shape(p, profile), to);
    else dequantise_panels(bytes.data() + g * item, {p.outputs, p.inputs, bits}, to);
  }
  return image;
}

WeightImages weight_images(Backend& backend, const Manifest& manifest, const WeightSet& weights, const Profile& profile) {
  WeightImages images;
  for (std::size_t i = 0; i < weights.parameters.size(); ++i) images.push_back(weight_image(backend, manifest.parameters()[i], weights.parameters[i], profile));
  return images;
}

PackedWeight packed_weight(const Manifest& manifest, const WeightSet& weights, ParameterId id, const Profile& profile) {
  const Parameter& p = manifest.parameter(id);
  return {weights.parameters[static_cast<std::size_t>(id)].view(), p.outputs, p.inputs, p.count, profile.maximum_leaves, weight_bits(p, profile)};
}

std::string weights_sha256(const Manifest& manifest, const WeightImages& images) {
  WeightsHash hash;
  std::vector<float> values;
  for (const FileTensor* file : files_by_name(manifest)) {
    values.resize(static_cast<std::size_t>(file->size()));
    manifest.gather(*file, images, values.data());
    hash.tensor(*file);
    hash.values(values);
  }
  return hash.hex();
}

std::uint64_t images_hash(const Manifest& manifest, const WeightImages& images) {
  std::uint64_t hash = 0;
  std::vector<float> values;
  for (const FileTensor& file : manifest.files()) {
    values.resize(static_cast<std::size_t>(file.size()));
    manifest.gather(file, images, values.data());
    hash = xxh3(values.data(), values.size() * sizeof(float), hash);
  }
  return hash;
}

NamedUniform::NamedUniform(std::uint64_t seed, const std::string& name) : seed_(seed) {
  const std::string digest = sha256_hex(name);
  const auto word = [&](std::size_t at) {  // little-endian
    std::uint32_t w = 0;
    for (std::size_t byte = 0; byte < 4; ++byte) w |= static_cast<std::uint32_t>(std::stoul(digest.substr(at + 2 * byte, 2), nullptr, 16)) << (8 * byte);
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
    if (file.shape.size() >= 2 || file.name.ends_with(".sinks")) {
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
