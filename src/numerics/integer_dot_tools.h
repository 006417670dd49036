// Tests only: one implementation of integer_dot_*.h behind a plain signature, so that a test compiled for no special
// instruction set can compare them. Templates over the implementation, so that no code is shared between instruction sets.
#pragma once
#include <cstdint>

namespace lockstep {

// Computes the 16 sums of a group of 32 inputs and a panel of 16 outputs; and of 32 numbers the largest magnitude, the roundings and
// their sum. q are 32 integers, weights 512 (8 bits) or 256 bytes, numbers 32.
struct IntegerDotResult {
  float sums[16];
  float largest = 0;
  std::int8_t rounded[32];
  std::int32_t rounded_sum = 0;
};
using IntegerDotTest = void (*)(int bits, const std::uint8_t* weights, const std::int8_t* q, const float* numbers, IntegerDotResult& out);

template <class Dot, class V, int Bits>
void sum_group(const std::uint8_t* weights, const std::int8_t* q, float* out) {
  std::int32_t row_sum = 0;
  for (int i = 0; i < 32; ++i) row_sum += q[i];
  auto sum = Dot::template start<Bits>(row_sum);
  for (int step = 0; step < Bits; ++step) {
    const auto w = Dot::template load<Bits>(weights + step * 64);
    if constexpr (Bits == 8) {
      Dot::template add<8>(sum, w, Dot::row(q + step * 4));
    } else {
      Dot::template add<4>(sum, Dot::low(w), Dot::row(q + step * 8));
      Dot::template add<4>(sum, Dot::high(w), Dot::row(q + step * 8 + 4));
    }
  }
  Dot::template finish<Bits>(sum, row_sum).store(out);
}
template <class Dot, class V>
void integer_dot_test(int bits, const std::uint8_t* weights, const std::int8_t* q, const float* numbers, IntegerDotResult& out) {
  if (bits == 8) sum_group<Dot, V, 8>(weights, q, out.sums);
  else sum_group<Dot, V, 4>(weights, q, out.sums);
  out.largest = Dot::largest_magnitude(V::load(numbers), V::load(numbers + 16));
  if (out.largest - out.largest == 0) out.rounded_sum = Dot::store(V::load(numbers), V::load(numbers + 16), out.rounded);  // kernels round nothing else
}

// Call only on machines with that instruction set.
IntegerDotTest avx2_integer_dot();
IntegerDotTest avx512_integer_dot();
IntegerDotTest avx512_vnni_integer_dot();

}  // namespace lockstep
