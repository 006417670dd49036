// A numerics profile: a complete contract under a name. Its digest goes with every checkpoint, sample and gradient;
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
  bool bf16_weights;      // compute copy of every parameter but the router's correction bias
  bool bf16_cache;        // cached latents, rope keys and index keys
  bool bf16_activations;  // study only: the input of every linear layer is rounded to bf16
  int maximum_leaves;     // of chain(G); 8 in every published profile
  bool study;             // never chosen silently: names a mismatch to be studied
  int weight_bits = 0;    // matrices of linear layers as integers of 8 or 4 bits (numerics/quantised.h), for serving; 0: none
  // Hex digest over everything above and the function versions below.
  std::string digest() const;
  // Of a trainer's state: with declared shared prefixes (train/data.h) gradients have other bits, and the digest is another one.
  std::string training_digest(bool declared_prefixes) const;
};

// Bumped when any form or elementary function changes its bits; published hashes are rebuilt in the same commit.
inline constexpr int kFormVersion = 1;
inline constexpr int kElementaryVersion = 1;
inline constexpr int kQuantiserVersion = 1;  // of profiles with integer weights
inline constexpr int kDeclaredPrefixVersion = 1;  // of training with declared shared prefixes

const std::vector<Profile>& profiles();
// Throws invalid_argument with the known names.
const Profile& profile_by_name(std::string_view name);

}  // namespace lockstep
