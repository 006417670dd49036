#include "model/packed_weights.h"

#include "base/error.h"

namespace lockstep {

PackedShape packed_shape(const Parameter& p, const Profile& profile) { return {p.outputs, p.inputs, packed_format_of(weight_bits(p, profile))}; }

std::int64_t item_bytes(const Parameter& p, const Profile& profile) {
  return is_packed_format(weight_bits(p, profile)) ? packed_shape(p, profile).bytes() : quantised_shape(p, profile).bytes();
}

void check_packable(const Manifest& manifest, const Profile& profile) {
  if (!is_packed_format(profile.weight_bits)) return;
  for (const Parameter& p : manifest.parameters())
    if (weight_bits(p, profile)) return;
  fail(ErrorCode::unsupported, "profile '{}' packs the weights of experts, and the model has none; allowed is cpu-{}-base", profile.name,
       packed_format_name(packed_format_of(profile.weight_bits)));
}

WeightBytes weight_bytes(const Manifest& manifest, const Profile& profile) {
  WeightBytes bytes;
  for (const Parameter& p : manifest.parameters()) {
    const std::int64_t few = weight_bits(p, profile) ? p.count * item_bytes(p, profile) : 0;
    bytes.few_bits += few;
    bytes.all += few ? few : p.size() * (compute_dtype(p, profile) == DType::bf16 ? 2 : 4);
  }
  return bytes;
}

}  // namespace lockstep
