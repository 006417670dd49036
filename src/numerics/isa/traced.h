// f32x16 over {value, hash}: runs a kernel template on values and yields the hash of its expression tree. `Tiles` is the
// vector type of an instruction set, whose register tile the traced kernel uses: equal hashes between
// Tiles = ScalarVec, Avx2Vec, Avx512Vec prove that tiling changes no order. max and select keep the chosen operand's hash.
#pragma once
#include "numerics/element.h"
#include "numerics/isa/tiles.h"

namespace lockstep {

// The order-free accumulator of a traced value: deposits hash as a wrapping sum.
struct TracedBin {
  double bin[3] = {0, 0, 0};
  std::uint64_t hash = 0;
};

template <class Tiles>
struct TracedVec {
  using Elem = Traced;
  using Half = Traced;
  static constexpr int kRows = Tiles::kRows;
  static constexpr int kPanels = Tiles::kPanels;
  Traced lane[16];

  static TracedVec set1(Traced x) {
    TracedVec r;
    for (Traced& l : r.lane) l = x;
    return r;
  }
  static TracedVec set1(float x) { return set1(traced_constant(x)); }
  static TracedVec zero() { return set1(0.0f); }
  static TracedVec load(const Traced* p) {
    TracedVec r;
    for (int i = 0; i < 16; ++i) r.lane[i] = p[i];
    return r;
  }
  static TracedVec load_partial(const Traced* p, int n) {
    TracedVec r = zero();
    for (int i = 0; i < n; ++i) r.lane[i] = p[i];
    return r;
  }
  void store(Traced* p) const {
    for (int i = 0; i < 16; ++i) p[i] = lane[i];
  }
  void store_partial(Traced* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = lane[i];
  }
  void store_half(Traced* p) const {
    for (int i = 0; i < 16; ++i) p[i] = store_bf16<Traced>(lane[i]);
  }
  void store_half_partial(Traced* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = store_bf16<Traced>(lane[i]);
  }
  Traced extract(int i) const { return lane[i]; }
  // Lanes i + (i + 8), then + 4, + 2, + 1: the tree of dot16.
  Elem tree_sum() const {
    Elem sum[16];
    store(sum);
    for (int half = 8; half >= 1; half /= 2)
      for (int i = 0; i < half; ++i) sum[i] = sum[i] + sum[i + half];
    return sum[0];
  }

  template <class F>
  static TracedVec map(const F& f) {
    TracedVec r;
    for (int i = 0; i < 16; ++i) r.lane[i] = f(i);
    return r;
  }
  static Traced unary(Operation op, Traced a, float value) { return {value, operation_hash(op, a.hash)}; }

  friend TracedVec operator+(const TracedVec& a, const TracedVec& b) {
    return map([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  friend TracedVec operator-(const TracedVec& a, const TracedVec& b) {
    return map([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  friend TracedVec operator*(const TracedVec& a, const TracedVec& b) {
    return map([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  friend TracedVec operator/(const TracedVec& a, const TracedVec& b) {
    return map([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  friend TracedVec fma(const TracedVec& a, const TracedVec& b, const TracedVec& c) {
    return map([&](int i) { return fused(a.lane[i], b.lane[i], c.lane[i]); });
  }
  friend TracedVec max(const TracedVec& a, const TracedVec& b) {
    return map([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  friend TracedVec min(const TracedVec& a, const TracedVec& b) {
    return map([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  friend TracedVec sqrt(const TracedVec& a) {
    return map([&](int i) { return square_root(a.lane[i]); });
  }
  friend TracedVec select_gt(const TracedVec& a, const TracedVec& b, const TracedVec& x, const TracedVec& y) {
    return map([&](int i) { return a.lane[i] > b.lane[i] ? x.lane[i] : y.lane[i]; });
  }
  friend TracedVec round_nearest(const TracedVec& a) {
    return map([&](int i) { return unary(Operation::round, a.lane[i], __builtin_nearbyintf(a.lane[i].value)); });
  }
  friend TracedVec pow2(const TracedVec& a) {
    return map([&](int i) {
      return unary(Operation::pow2, a.lane[i], bits_float(static_cast<std::uint32_t>(static_cast<std::int32_t>(a.lane[i].value) + 127) << 23));
    });
  }
  friend TracedVec exponent_of(const TracedVec& a) {
    return map([&](int i) {
      return unary(Operation::exponent, a.lane[i], static_cast<float>(static_cast<std::int32_t>((float_bits(a.lane[i].value) >> 23) & 0xff) - 126));
    });
  }
  friend TracedVec mantissa_of(const TracedVec& a) {
    return map([&](int i) { return unary(Operation::mantissa, a.lane[i], bits_float((float_bits(a.lane[i].value) & 0x007fffffu) | 0x3f000000u)); });
  }
};

}  // namespace lockstep
