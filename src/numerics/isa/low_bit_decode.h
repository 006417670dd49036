// Vector decoding of low-bit weights (numerics/low_bit.h) and rounding of rows (numerics/e4m3.h), 16 values at once, for the instruction sets that have it;
// the others go element by element. Every step of decoding is exact except the product with the scale, which is rounded once, the same on every
// instruction set.
//   e4m3      of 16 codes, unscaled            nibbles   of 16 words, 4 bits each from bit `shift` on, less 8
//   exponents 2^(byte - 127) of 16 bytes       halves    16 bf16
//   e2m1      of 16 words, a code of 4 bits each from bit `shift` on
//   larger    the larger magnitude of each lane, as bits; `magnitude` is the largest lane of that
//   nearest   nearest_e4m3 of each lane
#pragma once

namespace lockstep {

template <class V>
struct LowBitDecode {
  static constexpr bool kVectors = false;
};

}  // namespace lockstep
