// Weights as immutable versions. A forward pins one WeightSet; the optimizer fills another and publishes it by a pointer swap.
// Buffers are shared: between profiles in fp32 the compute copy is the master itself.
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

// The compute copy of all parameters under one profile, at one version. Never written after it is published.
struct WeightSet {
  std::uint64_t version = 0;
  std::vector<Buffer> parameters;  // by ParameterId: f32 or bf16, [1, size] packed or [outputs, inputs] table
};

// The host's fp32 image of every parameter (packed), by ParameterId.
using WeightImages = std::vector<std::vector<float>>;

// The dtype of a parameter's compute copy.
DType compute_dtype(const Parameter& parameter, const Profile& profile);
// Allocates a buffer in the shape kernels want; contents undefined.
Buffer allocate_parameter(Backend& backend, const Parameter& parameter, DType dtype, MemoryCategory category);
// Uploads an image as the compute copy of a profile (rounded to bf16 where the profile says so).
std::shared_ptr<const WeightSet> make_weight_set(Backend& backend, const Manifest& manifest, const WeightImages& images,
                                                 const Profile& profile, std::uint64_t version);
PackedWeight packed_weight(const Manifest& manifest, const WeightSet& weights, ParameterId id, const Profile& profile);

// The published hash: SHA-256 over (name, dtype, shape, little-endian row-major bytes) of the fp32 masters, by file name.
// Each tensor contributes: name, '\0', "F32", '\0', shape as decimal joined by 'x', '\0', bytes.
std::string weights_sha256(const Manifest& manifest, const WeightImages& images);

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
