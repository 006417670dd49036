// The Gumbel noise of a token and the order of ranks (sample.h), shared by CPU and GPU. Templates over
// the vector, since CPU kernels include this below their instruction set's pragma.
#pragma once
#include "base/philox.h"
#include "numerics/elementary.h"

namespace lockstep {

// u of a random word.
template <class V>
LOCKSTEP_EVERYWHERE inline typename V::Elem noise_uniform(std::uint32_t word) {
  return element<typename V::Elem>((static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f);
}
// g = -log(-log u).
template <class V>
LOCKSTEP_EVERYWHERE inline V gumbel_of(const V& u) {
  return V::zero() - log(V::zero() - log(u));
}
// No noise is larger: u = 1 - 2^-24.
template <class V>
LOCKSTEP_EVERYWHERE inline float largest_noise() {
  return value_of(gumbel_of(V::set1(noise_uniform<V>(0xffffffffu))).extract(0));
}

// Where a row's noise comes from.
struct NoiseKey {
  std::uint64_t seed;
  std::uint32_t position, sample, stream;
};
// The words of the tokens 4 block .. 4 block + 3.
template <class V>
LOCKSTEP_EVERYWHERE inline Philox::Words noise_words(const NoiseKey& key, std::uint32_t block) {
  return Philox::generate(key.seed, {block, key.position, key.sample, key.stream});
}

// Ascending as z descends; -0 equals +0; no NaN.
template <class V>
LOCKSTEP_EVERYWHERE inline std::uint32_t descending_key(float z) {
  const std::uint32_t bits = z == 0.0f ? 0u : float_bits(z);
  return ~(bits >> 31 ? ~bits : bits | 0x80000000u);
}

// The highest score so far; a tie goes to the lower index.
struct BestToken {
  float score = -__builtin_inff();
  std::int32_t id = -1;
};
template <class V>
LOCKSTEP_EVERYWHERE inline bool goes_before(const BestToken& a, const BestToken& b) {
  return a.id >= 0 && (b.id < 0 || a.score > b.score || (a.score == b.score && a.id < b.id));
}

}  // namespace lockstep
