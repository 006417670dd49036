#include "numerics/profile.h"

#include "base/choice.h"
#include "base/hash.h"
#include "numerics/low_bit.h"

namespace lockstep {

const std::vector<Profile>& profiles() {
  static const std::vector<Profile> all = {
      {"cpu-f32", "weights, cache and arithmetic in fp32; goldens are held against it", false, false, false, 8, false},
      {"cpu-bf16w", "bf16 compute copy and cache, fp32 activations, sums and masters; the default", true, true, false, 8, false},
      {"cpu-f32-expanded", "as cpu-f32; latent attention over all keys keeps each head's own key and value", false, false, false, 8, false, true},
      {"cpu-bf16w-expanded", "as cpu-bf16w; latent attention over all keys keeps each head's own key and value", true, true, false, 8, false, true},
      {"cpu-int8w", "matrices as 8-bit integers with a scale a group of 32, inputs of products too, the rest as cpu-bf16w; serving alone", true, true, false, 8,
       false, false, 8},
      {"cpu-int4w", "as cpu-int8w with matrices of 4-bit integers; serving alone", true, true, false, 8, false, false, 4},
      {"cpu-int4-base", "as cpu-bf16w with frozen matrices in 4-bit integers with a scale a group of 32, decoded where they are used; adapters train", true,
       true, false, 8, false, false, static_cast<int>(LowBitFormat::int4)},
      {"cpu-fp8-base", "as cpu-int4-base with matrices in E4M3 and a scale a block of 128 x 128", true, true, false, 8, false, false,
       static_cast<int>(LowBitFormat::fp8)},
      {"cpu-mxfp8-base", "as cpu-int4-base with matrices in MXFP8: E4M3 and a power of two a group of 32", true, true, false, 8, false, false,
       static_cast<int>(LowBitFormat::mxfp8)},
      {"cpu-mxfp4-base", "as cpu-int4-base with matrices in MXFP4: E2M1 and a power of two a group of 32", true, true, false, 8, false, false,
       static_cast<int>(LowBitFormat::mxfp4)},
      {"cpu-int4-experts", "as cpu-int4-base, experts' matrices alone", true, true, false, 8, false, false,
       static_cast<int>(LowBitFormat::int4) | kLowBitExperts},
      {"cpu-fp8-experts", "as cpu-fp8-base, experts' matrices alone", true, true, false, 8, false, false, static_cast<int>(LowBitFormat::fp8) | kLowBitExperts},
      {"cpu-mxfp8-experts-base", "as cpu-mxfp8-base, experts' matrices alone", true, true, false, 8, false, false,
       static_cast<int>(LowBitFormat::mxfp8) | kLowBitExperts},
      {"cpu-mxfp4-experts", "as cpu-mxfp4-base, experts' matrices alone", true, true, false, 8, false, false,
       static_cast<int>(LowBitFormat::mxfp4) | kLowBitExperts},
      {"cpu-int4-qat",
       "as cpu-bf16w; linear layers and experts compute with their fp32 masters in 4-bit integers with a scale a group of 32; all weights train", true, true,
       false, 8, false, false, static_cast<int>(LowBitFormat::int4) | kLowBitTrained},
      {"cpu-fp8",
       "as cpu-bf16w; linear layers and experts in 8 bits: fp32 masters in E4M3 with a power of two a block of 128 x 128, rows of inputs and of gradients in "
       "groups of 128; all weights train",
       true, true, false, 8, false, false, static_cast<int>(LowBitFormat::fp8) | kLowBitTrained | kLowBitRows},
      {"cpu-mxfp8", "as cpu-fp8 in MXFP8, groups of 32: weights along their inputs for the forward and along their outputs for the gradient of inputs", true,
       true, false, 8, false, false, static_cast<int>(LowBitFormat::mxfp8_both) | kLowBitTrained | kLowBitRows},
      {"cpu-mxfp8-experts", "as cpu-mxfp8, experts alone; the rest as cpu-bf16w, all weights train", true, true, false, 8, false, false,
       static_cast<int>(LowBitFormat::mxfp8_both) | kLowBitTrained | kLowBitRows | kLowBitExperts},
      {"study-bf16-activations", "as cpu-bf16w with bf16 activations and 2 leaves: the mismatch of a second engine", true, true, true, 2, true},
      {"study-leaves", "as cpu-bf16w with another leaf count: the negative control of parity", true, true, false, 2, true},
      {"study-leaves-f32", "as cpu-f32 with another leaf count: the negative control of parity", false, false, false, 2, true},
      {"study-leaves-int8", "as cpu-int8w with another leaf count: the negative control of parity", true, true, false, 2, true, false, 8},
      {"study-leaves-int4", "as cpu-int4w with another leaf count: the negative control of parity", true, true, false, 2, true, false, 4},
  };
  return all;
}

const Profile& profile_by_name(std::string_view name) {
  std::vector<std::string> names;
  for (const Profile& p : profiles()) {
    if (p.name == name) return p;
    names.push_back(p.name);
  }
  fail_choice("profile", name, names);
}

bool Profile::trains_all_weights() const { return weight_bits == 0 || (weight_bits & kLowBitTrained) != 0; }

std::string Profile::digest() const {
  std::string text = fmt::format("form {} elementary {} bf16w {} bf16cache {} bf16act {} leaves {}", kFormVersion, kElementaryVersion, bf16_weights, bf16_cache,
                                 bf16_activations, maximum_leaves);
  if (is_low_bit_format(weight_bits))
    text += fmt::format(" packed {} {} packer {}", low_bit_format_name(low_bit_format_of(weight_bits)),
                        weight_bits & kLowBitTrained   ? "trained"
                        : weight_bits & kLowBitExperts ? "experts"
                                                       : "linear",
                        kLowBitVersion);
  else if (weight_bits) text += fmt::format(" integers {} quantiser {}", weight_bits, kQuantiserVersion);  // older profiles keep their digests
  if (weight_bits & kLowBitRows)
    text += fmt::format(" {}rows in groups of {}", weight_bits & kLowBitExperts ? "experts alone " : "", row_group(low_bit_format_of(weight_bits)));
  if (expanded_latents) text += " expanded latents";
  return sha256_hex(text).substr(0, 16);
}

std::string Profile::training_digest(bool declared_prefixes) const {
  return declared_prefixes ? sha256_hex(fmt::format("{} declared prefixes {}", digest(), kDeclaredPrefixVersion)).substr(0, 16) : digest();
}

}  // namespace lockstep
