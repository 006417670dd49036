// integer_dot_scalar.h over {value, hash}: quantised inputs are expressions (rounded numbers), weights are constants hashed by their
// bits, and the hash of an exact sum is the wrapping sum of its products' hashes, so it has no order.
#pragma once
#include "numerics/isa/low_bit_decode.h"
#include "numerics/isa/traced.h"

namespace lockstep {

template <class Vec>
struct TracedIntegerDot {
  using Stored = Traced;
  struct Weights {
    const std::uint8_t* bytes;
    int shift, mask, zero;
  };
  struct Row {
    const Stored* q;
  };
  struct Sum {
    Traced lane[16];
  };

  template <int Bits>
  static Weights load(const std::uint8_t* bytes) {
    return {bytes, 0, Bits == 8 ? 255 : 15, Bits == 8 ? 128 : 8};
  }
  static Weights low(const Weights& w) { return w; }
  static Weights high(const Weights& w) { return {w.bytes, 4, w.mask, w.zero}; }
  static Row row(const Stored* q) { return {q}; }
  template <int Bits>
  static Sum start(std::int32_t) {
    return {};
  }
  template <int Bits>
  static void add(Sum& sum, const Weights& w, const Row& x) {
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 4; ++j) {
        const Traced product = traced_constant(static_cast<float>((w.bytes[i * 4 + j] >> w.shift & w.mask) - w.zero)) * x.q[j];
        sum.lane[i].value += product.value;  // integers below 2^24
        sum.lane[i].hash += product.hash;
      }
  }
  template <int Bits>
  static Vec finish(const Sum& sum, std::int32_t) {
    Vec r;
    for (int i = 0; i < 16; ++i) r.lane[i] = {sum.lane[i].value, operation_hash(Operation::integer_sum, sum.lane[i].hash)};
    return r;
  }

  static Traced largest_magnitude(const Vec& a, const Vec& b) {
    Traced largest = a.lane[0];
    const auto bits = [](const Traced& x) { return float_bits(x.value) & 0x7fffffffu; };
    for (const Vec* v : {&a, &b})
      for (const Traced& x : v->lane)
        if (bits(x) > bits(largest)) largest = x;
    return largest.value < 0 ? traced_constant(0.0f) - largest : Traced{bits_float(bits(largest)), largest.hash};
  }
  static std::int32_t store(const Vec& a, const Vec& b, Stored* q) {
    for (int i = 0; i < 32; ++i) {
      const Traced& x = i < 16 ? a.lane[i] : b.lane[i - 16];
      q[i] = Vec::unary(Operation::round, x, __builtin_nearbyintf(x.value));
    }
    return 0;  // no offset to subtract
  }
  static Stored zero() { return traced_constant(0.0f); }
  static Vec scales(const std::uint8_t* bytes) {
    Vec r;
    for (int i = 0; i < 16; ++i) {
      Bf16 scale;
      __builtin_memcpy(&scale, bytes + 2 * i, 2);
      r.lane[i] = traced_constant(widen(scale));
    }
    return r;
  }
};

template <class V, class F>
inline void with_integer_dot(const F& f) {
  f(TracedIntegerDot<V>{});
}

}  // namespace lockstep
