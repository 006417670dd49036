#include "model/low_bit_weights.h"

#include "base/error.h"
#include "numerics/form.h"

namespace lockstep {

int weight_bits(const Parameter& p, const Profile& profile) {
  if (p.layout != ParameterLayout::packed || !p.trained || p.exact) return 0;
  if (!is_low_bit_format(profile.weight_bits)) return profile.weight_bits;
  // Where all weights train, head and embedding stay as they are.
  if (profile.weight_bits & kLowBitTrained && (p.tied || p.split == ParameterSplit::vocabulary)) return 0;
  return profile.weight_bits & kLowBitExperts && p.split != ParameterSplit::experts ? 0 : static_cast<int>(low_bit_format_of(profile.weight_bits));
}

QuantisedShape quantised_shape(const Parameter& p, const Profile& profile) { return {p.outputs, p.inputs, weight_bits(p, profile)}; }

DType compute_dtype(const Parameter& parameter, const Profile& profile) {
  if (weight_bits(parameter, profile)) return DType::u8;
  return profile.bf16_weights && parameter.trained ? DType::bf16 : DType::f32;
}

std::int64_t input_leaves(const Parameter& p, const Profile& profile) {
  const int bits = weight_bits(p, profile);
  return bits && !is_low_bit_format(bits) ? quantised_leaf_count(p.inputs, profile.maximum_leaves) : leaf_count(p.inputs, profile.maximum_leaves);
}

LowBitShape low_bit_shape(const Parameter& p, const Profile& profile) { return {p.outputs, p.inputs, low_bit_format_of(weight_bits(p, profile))}; }

bool computes_with_int4(const Parameter& p, const Profile& profile) { return low_bit_format_of(weight_bits(p, profile)) == LowBitFormat::int4; }

bool takes_int4(const Parameter& p, const Profile& profile) { return computes_with_int4(p, profile) && !(profile.weight_bits & kLowBitTrained); }

std::int64_t item_bytes(const Parameter& p, const Profile& profile) {
  return is_low_bit_format(weight_bits(p, profile)) ? low_bit_shape(p, profile).bytes() : quantised_shape(p, profile).bytes();
}

void check_low_bit(const Manifest& manifest, const Profile& profile) {
  if (!is_low_bit_format(profile.weight_bits)) return;
  for (const Parameter& p : manifest.parameters())
    if (weight_bits(p, profile)) return;
  fail(ErrorCode::unsupported, "profile '{}' quantises the weights of experts, and the model has none; allowed is cpu-{}-base", profile.name,
       low_bit_format_name(low_bit_format_of(profile.weight_bits)));
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
