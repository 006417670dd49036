// Of weights in few bits, integers or packed (numerics/packed.h): which parameters of a model a profile holds so, and their bytes. Knows no kernel.
//   const WeightBytes bytes = weight_bytes(model->manifest(), profile);
#pragma once
#include "model/weights.h"
#include "numerics/packed.h"

namespace lockstep {

// How many bytes one item of a parameter has that weight_bits (model/weights.h) says something of.
std::int64_t item_bytes(const Parameter& parameter, const Profile& profile);
// How one item lies that is packed.
PackedShape packed_shape(const Parameter& parameter, const Profile& profile);
// Errors: unsupported for a profile that packs the weights of experts and a model without them.
void check_packable(const Manifest& manifest, const Profile& profile);
// Bytes of the compute copies of all parameters, exactly what memory accounts say of them, and of those in few bits alone.
struct WeightBytes {
  std::int64_t all = 0, few_bits = 0;
};
WeightBytes weight_bytes(const Manifest& manifest, const Profile& profile);

}  // namespace lockstep
