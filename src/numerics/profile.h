// A numerics profile: one complete set of numerics choices under a name. Its digest goes with every checkpoint, sample and gradient;
// mixing two profiles is refused unless the caller asks for it.
//   const Profile& p = profile_by_name("cpu-bf16w");
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Profile {
  std::string name;
  std::string description;
  bool bf16_weights;              // compute copy of every parameter but the router's correction bias
  bool bf16_cache;                // cached latents, rope keys and index keys
  bool bf16_activations;          // study only: the input of every linear layer is rounded to bf16
  int maximum_leaves;             // of chain(G); 8 in every published profile
  bool study;                     // made to study a mismatch; never a default
  bool expanded_latents = false;  // latent attention keeps each head's own key and value, in the cache too, instead of the latent that they are made of
  int weight_bits = 0;  // linear layers' matrices as 8-bit or 4-bit integers (numerics/quantised.h) or in a low-bit format (numerics/low_bit.h); 0: neither
  // Whether a training step can move all weights: not where they are frozen or of integers.
  bool trains_all_weights() const;
  // Whether masters that were saved in bf16 and are loaded again give the same compute copy, and so the same bits.
  bool bf16_files_keep_bits() const { return bf16_weights && weight_bits == 0; }
  // Hex digest over everything above and the function versions below.
  std::string digest() const;
  // The digest of a trainer's state: declared shared prefixes (train/data.h) change the bits of gradients, and so the digest.
  std::string training_digest(bool declared_prefixes) const;
};

// Bumped when any form or elementary function changes its bits; published hashes are rebuilt in the same commit.
inline constexpr int kFormVersion = 1;
inline constexpr int kElementaryVersion = 1;
inline constexpr int kQuantiserVersion = 1;       // of profiles with integer weights
inline constexpr int kDeclaredPrefixVersion = 1;  // of training with declared shared prefixes

const std::vector<Profile>& profiles();
// Throws invalid_argument with the known names.
const Profile& profile_by_name(std::string_view name);

}  // namespace lockstep
