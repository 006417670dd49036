// Decoding packed weights (numerics/packed.h) with vectors: 16 numbers of a line at once, for instruction sets that have a way; the others
// decode element by element. Every step is exact but the product with the scale, which is the same one rounding everywhere.
//   e4m3      of 16 codes, unscaled            nibbles   of 16 words, 4 bits each from bit `shift` on, less 8
//   exponents 2^(byte - 127) of 16 bytes       halves    16 bf16
#pragma once

namespace lockstep {

template <class V>
struct PackedDecode {
  static constexpr bool kVectors = false;
};

}  // namespace lockstep
