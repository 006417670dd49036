// Converts file tensors to what a profile computes with, a part of a tensor at a time: onto a device, or for writing it out again. The tensors are
// those of a manifest. Knows no file's name. Several threads may call the functions without a backend.
//   const auto weights = computed_weights(model.manifest(), reader.tensors(), backend, profile, 0);
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "checkpoint/stored_tensor.h"
#include "model/weight_pool.h"
#include "model/weights.h"

namespace lockstep {

// A matrix in compressed-tensors' format `pack-quantized` (numerics/int4_words.h).
struct Int4Matrix {
  std::vector<std::uint32_t> words;
  std::vector<Bf16> scales;
};

// The compute copies, with the bits of make_weight_set(masters). Beside them a few parts of a tensor are in memory, one a thread. Error corrupt_file
// for a value that is not finite. `part`: shares equal parameters with other models in memory, and may throw; null: nothing is shared.
std::shared_ptr<const WeightSet> computed_weights(const Manifest& manifest, const std::vector<StoredTensor>& tensors, Backend& backend, const Profile& profile,
                                                  std::uint64_t version, WeightPool::Part* part = nullptr);

// Whether a profile's compute copy of a tensor can be written as an Int4Matrix; and the copy as one.
bool writes_int4(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile);
Int4Matrix read_int4(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile);
// The same of MXFP4: all experts in one tensor [experts, inputs, outputs], as gpt-oss' folders have them in blocks [experts, outputs, inputs / 32, 16]
// and scales [experts, outputs, inputs / 32]. Read from a file that has them so, they are its bytes.
struct Mxfp4Experts {
  std::vector<std::uint8_t> blocks, scales;
};
bool writes_mxfp4(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile);
Mxfp4Experts read_mxfp4_experts(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile);
// The same of E4M3 under profiles of fp8 and mxfp8: numbers [rows, columns] and their scales, in blocks of 128 x 128, fp32, as DeepSeek's folders have
// them, or in groups of 32 inputs, E8M0. They are what the forward computes with; the second copy that MXFP8 has for input gradients is not written.
// keeps_e4m3: they are the file's own, as it has them, scales in its type. Error numeric for a matrix with a NaN.
struct E4m3Matrix {
  std::vector<std::uint8_t> numbers;
  std::vector<float> block_scales;         // of fp8
  std::vector<std::uint8_t> group_scales;  // of mxfp8
};
bool writes_e4m3(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile);
bool keeps_e4m3(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile);
E4m3Matrix read_e4m3(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile);
// Replaces a tensor's values (row-major) by those that a profile's kernels compute with, where the profile has it in a low-bit format; other values
// stay as they are, for the writer to round.
void as_computed(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile, std::vector<float>& values);

}  // namespace lockstep
