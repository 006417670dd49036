#include "model/low_bit_weights.h"

#include <algorithm>

#include "base/error.h"
#include "numerics/form.h"

namespace lockstep {

int weight_bits(const Parameter& p, const Profile& profile) {
  if (p.layout != ParameterLayout::packed || !p.trained || p.exact) return 0;
  if (!is_low_bit_format(profile.weight_bits)) return profile.weight_bits;
  // Where all weights train, head and embedding stay as they are.
  if (profile.weight_bits & kLowBitTrained && (p.tied || p.split == ParameterSplit::vocabulary)) return 0;
  if (profile.weight_bits & kLowBitExperts && p.split != ParameterSplit::experts) return 0;
  return static_cast<int>(low_bit_format_of(profile.weight_bits)) | (profile.weight_bits & kLowBitRows);
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

bool takes_format(const Parameter& p, const Profile& profile, LowBitFormat format) {
  return low_bit_format_of(weight_bits(p, profile)) == format && !(profile.weight_bits & kLowBitTrained);
}

std::int64_t item_bytes(const Parameter& p, const Profile& profile) {
  return is_low_bit_format(weight_bits(p, profile)) ? low_bit_shape(p, profile).bytes() : quantised_shape(p, profile).bytes();
}

std::int64_t inputs_of_scale(const Parameter& p, const Profile& profile) {
  const LowBitFormat format = low_bit_format_of(weight_bits(p, profile));
  return format == LowBitFormat::none ? 1 : format == LowBitFormat::fp8 ? kFp8Block : kQuantisedGroup;
}

std::int64_t outputs_of_scale(const Parameter& p, const Profile& profile) {
  const int bits = weight_bits(p, profile);
  if (low_bit_format_of(bits) == LowBitFormat::fp8) return kFp8Block;
  return bits & kLowBitRows ? kQuantisedGroup : 1;
}

std::int64_t outputs_of_scale(const Profile& profile) {
  Parameter linear;
  linear.split = ParameterSplit::outputs;
  return outputs_of_scale(linear, profile);
}

namespace {
std::int64_t panels_of_scale(const Parameter& p, const Profile& profile) { return (outputs_of_scale(p, profile) + 15) / 16; }
}  // namespace

bool scales_run_on(const Parameter& p, const Profile& profile) { return p.count == 1 || (p.outputs + 15) / 16 % panels_of_scale(p, profile) == 0; }

ParameterShare share_of_scales(const Parameter& p, ParameterId id, int rank, int ranks, const Profile& profile) {
  ParameterShare share = parameter_share(p, id, rank, ranks);
  const std::int64_t together = scales_run_on(p, profile) ? panels_of_scale(p, profile) : (p.outputs + 15) / 16, total = share.total();
  if (together <= 1) return share;
  const std::int64_t units = (total + together - 1) / together;
  for (int r = 0; r <= ranks; ++r) share.bounds[static_cast<std::size_t>(r)] = std::min(total, (units * r + id % ranks) / ranks * together);
  return share;
}

std::string low_bit_refusal(const Manifest& manifest, const Profile& profile) {
  if (!is_low_bit_format(profile.weight_bits)) return "";
  for (const Parameter& p : manifest.parameters())
    if (weight_bits(p, profile)) return "";
  return fmt::format("profile '{}' quantises the weights of experts, and the model has none; allowed is cpu-{}{}", profile.name,
                     low_bit_format_name(low_bit_format_of(profile.weight_bits)), profile.trains_all_weights() ? "" : "-base");
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
