// Exact sums of products of integers, for 8-bit and 4-bit weights (numerics/quantised.h): the reference that other instruction sets are tested
// against. All share this interface; integer sums are exact, so they need no order.
//   q       inputs of a row, quantised to [-127, 127]
//   load    64 bytes of weights, [16 outputs][4 inputs]; low and high: the quads of 64 bytes of 4-bit weights
//   start, add, finish: the sum over a group of 32 inputs, as 16 floats (below 2^24, so exact); row_sum is the sum of the group's q
// An .inl reaches its instruction set's through LOCKSTEP_INTEGER_DOT and calls with_integer_dot<V>([&](auto dot) { ... }).
#pragma once
#include "numerics/isa/low_bit_decode.h"
#include "numerics/isa/scalar.h"

namespace lockstep {

struct ScalarIntegerDot {
  using Stored = std::int8_t;
  struct Weights {
    const std::uint8_t* bytes;
    int shift, mask, zero;
  };
  struct Row {
    const Stored* q;
  };
  struct Sum {
    std::int32_t lane[16];
  };

  template <int Bits>
  static Weights load(const std::uint8_t* bytes) {
    return {bytes, 0, Bits == 8 ? 255 : 15, Bits == 8 ? 128 : 8};
  }
  static Weights low(const Weights& w) { return w; }
  static Weights high(const Weights& w) { return {w.bytes, 4, w.mask, w.zero}; }
  static Row row(const Stored* q) { return {q}; }
  template <int Bits>
  static Sum start(std::int32_t row_sum) {
    return {};
  }
  template <int Bits>
  static void add(Sum& sum, const Weights& w, const Row& x) {
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 4; ++j) sum.lane[i] += ((w.bytes[i * 4 + j] >> w.shift & w.mask) - w.zero) * x.q[j];
  }
  template <int Bits>
  static ScalarVec finish(const Sum& sum, std::int32_t row_sum) {
    ScalarVec r;
    for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(sum.lane[i]);
    return r;
  }

  // The largest magnitude of 32 numbers. Infinity and NaN (without its sign) are larger than every finite number.
  static float largest_magnitude(const ScalarVec& a, const ScalarVec& b) {
    std::uint32_t largest = 0;
    for (const ScalarVec* v : {&a, &b})
      for (float x : v->lane) largest = largest > (float_bits(x) & 0x7fffffffu) ? largest : float_bits(x) & 0x7fffffffu;
    return bits_float(largest);
  }
  // Rounds 32 numbers, ties to even, and returns their sum.
  static std::int32_t store(const ScalarVec& a, const ScalarVec& b, Stored* q) {
    std::int32_t sum = 0;
    for (int i = 0; i < 32; ++i) {
      q[i] = static_cast<Stored>(__builtin_nearbyintf(i < 16 ? a.lane[i] : b.lane[i - 16]));
      sum += q[i];
    }
    return sum;
  }
  static Stored zero() { return 0; }
  static ScalarVec scales(const std::uint8_t* bytes) { return ScalarVec::load(reinterpret_cast<const Bf16*>(bytes)); }
};

template <class V, class F>
inline void with_integer_dot(const F& f) {
  f(ScalarIntegerDot{});
}

}  // namespace lockstep
