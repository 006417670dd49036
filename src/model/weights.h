// Weights as immutable versions: a forward holds one WeightSet; the optimizer fills another and publishes it by swapping a pointer. Versions may
// share buffers; in fp32 profiles the compute copy is the master itself.
//   const std::shared_ptr<const WeightSet> weights = make_weight_set(backend, model->manifest(), images, profile, 0);
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/linear/linear.h"
#include "model/manifest.h"
#include "numerics/profile.h"

namespace lockstep {

struct WeightChanges;

// The compute copy of all parameters under one profile, at one version. Never written after it is published.
struct WeightSet {
  std::uint64_t version = 0;
  // By ParameterId: f32 or bf16, [1, size] panels or [outputs, inputs] table; or u8 [count, bytes], quantised matrices.
  std::vector<Buffer> parameters;
  // Unique in this process, while two trainers may publish equal versions: the key for caches of results.
  const std::uint64_t identity = next_identity();
  // How it differs from another set, as long as whoever made it keeps that (model/weight_changes.h): for ranks that have shares of the other.
  std::weak_ptr<const WeightChanges> changes;

  WeightSet() = default;
  WeightSet(const WeightSet&) = delete;
  // From 1, of weight sets and adapters (model/adapter.h) alike. Any thread.
  static std::uint64_t next_identity();
};

// Host images: every parameter's values in fp32, in the device's layout (panels or table), by ParameterId.
using WeightImages = std::vector<std::vector<float>>;

// How a profile quantises this parameter (Profile::weight_bits); 0: not at all, it is a float (compute_dtype).
int weight_bits(const Parameter& parameter, const Profile& profile);
// Layout of one item if it is integers (numerics/quantised.h).
QuantisedShape quantised_shape(const Parameter& parameter, const Profile& profile);
// The dtype of a parameter's compute copy; u8: quantised.
DType compute_dtype(const Parameter& parameter, const Profile& profile);
// Leaves of the sum over a parameter's inputs.
std::int64_t input_leaves(const Parameter& parameter, const Profile& profile);
// Allocates a buffer in the shape that kernels take; contents undefined.
Buffer allocate_parameter(Backend& backend, const Parameter& parameter, DType dtype, MemoryCategory category);
// The compute copy of one parameter: an image uploaded as it is, rounded to bf16, or quantised.
Buffer make_compute_copy(Backend& backend, const Parameter& parameter, const Profile& profile, const std::vector<float>& image);
// The same of all parameters.
std::shared_ptr<const WeightSet> make_weight_set(Backend& backend, const Manifest& manifest, const WeightImages& images, const Profile& profile,
                                                 std::uint64_t version);
// The values that kernels compute with (widened, dequantised); a weight set made of them has the same bits.
WeightImages weight_images(Backend& backend, const Manifest& manifest, const WeightSet& weights, const Profile& profile);
// The same of one parameter; on a device that only counts nothing.
std::vector<float> weight_image(Backend& backend, const Parameter& parameter, const Buffer& copy, const Profile& profile);
// Errors: unsupported under a profile with quantised weights, which no optimizer step can update.
void check_trainable(const Profile& profile);
PackedWeight packed_weight(const Manifest& manifest, const WeightSet& weights, ParameterId id, const Profile& profile);

// The published hash: SHA-256 over (name, dtype, shape, little-endian row-major bytes) of the fp32 masters, by file name.
// Each tensor contributes: name, '\0', "F32", '\0', shape as decimal joined by 'x', '\0', bytes.
std::string weights_sha256(const Manifest& manifest, const WeightImages& images);

// XXH3-64 chained over the file-order fp32 values of all tensors.
std::uint64_t images_hash(const Manifest& manifest, const WeightImages& images);

// Random initial weights: matrices uniform with standard deviation `deviation`, norm weights 1, biases 0; a function of
// (seed, tensor name, index) alone.
WeightImages initial_weights(const Manifest& manifest, std::uint64_t seed, double deviation);

// The random numbers of tools/golden_weights.py: uniform in [-1, 1) for element `index` of tensor `name`.
class NamedUniform {
 public:
  NamedUniform(std::uint64_t seed, const std::string& name);
  float operator()(std::uint64_t index);

 private:
  std::uint64_t seed_;
  std::uint32_t word0_, word1_;
  std::uint64_t block_ = ~std::uint64_t{0};
  std::uint32_t words_[4];
};

}  // namespace lockstep
