// Gathers the tokens that a mask allows, in ascending order of id: shared by sampling and top tokens, so that
// both sum the same numbers in the same order. Included by the .inl and the .cu of sample/ and top/; every function is a template over V. CUDA
// kernels use mask_words from here, and gather with all threads of a block (block_ranks.h).
#pragma once

namespace lockstep {

// Ids of the set bits below n; `out` has room for n.
template <class V>
inline std::int64_t allowed_tokens(const std::int32_t* words, std::int64_t n, std::int32_t* out) {
  std::int64_t count = 0;
  for (std::int64_t w = 0; w * 32 < n; ++w) {
    std::uint32_t bits = static_cast<std::uint32_t>(words[w]);
    if (n - w * 32 < 32) bits &= (1u << (n - w * 32)) - 1;
    for (; bits != 0; bits &= bits - 1) out[count++] = static_cast<std::int32_t>(w * 32 + __builtin_ctz(bits));
  }
  return count;
}

template <class V>
inline void gather(const typename V::Elem* from, const std::int32_t* ids, std::int64_t count, typename V::Elem* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = from[ids[i]];
}

// The row of a mask that item `item` uses, or null.
template <class V>
LOCKSTEP_EVERYWHERE inline const std::int32_t* mask_words(const View& mask, const View& mask_row, std::int64_t item) {
  if (!mask) return nullptr;
  const std::int32_t row = ints(mask_row)[item * mask_row.stride];
  return row < 0 ? nullptr : ints(mask) + row * mask.stride;
}

}  // namespace lockstep
