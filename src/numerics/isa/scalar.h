// f32x16 as loops over its lanes, without intrinsics: the reference that the other instruction sets are tested against.
#pragma once
#include "numerics/element.h"
#include "numerics/isa/tiles.h"

namespace lockstep {

// Sixteen doubles, for the order-free accumulator only.
struct ScalarDouble {
  double lane[16];
  static ScalarDouble set1(double x) {
    ScalarDouble r;
    for (double& l : r.lane) l = x;
    return r;
  }
  static ScalarDouble load(const double* p) {
    ScalarDouble r;
    for (int i = 0; i < 16; ++i) r.lane[i] = p[i];
    return r;
  }
  void store(double* p) const {
    for (int i = 0; i < 16; ++i) p[i] = lane[i];
  }
};
inline ScalarDouble operator+(ScalarDouble a, const ScalarDouble& b) {
  for (int i = 0; i < 16; ++i) a.lane[i] += b.lane[i];
  return a;
}
inline ScalarDouble operator-(ScalarDouble a, const ScalarDouble& b) {
  for (int i = 0; i < 16; ++i) a.lane[i] -= b.lane[i];
  return a;
}
inline ScalarDouble operator*(ScalarDouble a, const ScalarDouble& b) {
  for (int i = 0; i < 16; ++i) a.lane[i] *= b.lane[i];
  return a;
}
inline ScalarDouble floor(ScalarDouble a) {
  for (double& l : a.lane) l = __builtin_floor(l);
  return a;
}

struct ScalarVec {
  using Elem = float;
  using Half = Bf16;
  using Double = ScalarDouble;
  static constexpr int kRows = ScalarTiles::kRows, kPanels = ScalarTiles::kPanels;
  float lane[16];

  static ScalarVec set1(float x) {
    ScalarVec r;
    for (float& l : r.lane) l = x;
    return r;
  }
  static ScalarVec zero() { return set1(0.0f); }
  static ScalarVec load(const float* p) {
    ScalarVec r;
    for (int i = 0; i < 16; ++i) r.lane[i] = p[i];
    return r;
  }
  // Lanes n.. are +0.
  static ScalarVec load_partial(const float* p, int n) {
    ScalarVec r = zero();
    for (int i = 0; i < n; ++i) r.lane[i] = p[i];
    return r;
  }
  static ScalarVec load(const Bf16* p) {
    ScalarVec r;
    for (int i = 0; i < 16; ++i) r.lane[i] = widen(p[i]);
    return r;
  }
  static ScalarVec load_partial(const Bf16* p, int n) {
    ScalarVec r = zero();
    for (int i = 0; i < n; ++i) r.lane[i] = widen(p[i]);
    return r;
  }
  void store(float* p) const {
    for (int i = 0; i < 16; ++i) p[i] = lane[i];
  }
  void store_partial(float* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = lane[i];
  }
  void store(Bf16* p) const {
    for (int i = 0; i < 16; ++i) p[i] = round_to_bf16(lane[i]);
  }
  void store_partial(Bf16* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = round_to_bf16(lane[i]);
  }
  void store_half(Bf16* p) const { store(p); }
  void store_half_partial(Bf16* p, int n) const { store_partial(p, n); }
  float extract(int i) const { return lane[i]; }
  // Lanes i + (i + 8), then + 4, + 2, + 1: the tree of dot16.
  Elem tree_sum() const {
    Elem sum[16];
    store(sum);
    for (int half = 8; half >= 1; half /= 2)
      for (int i = 0; i < half; ++i) sum[i] = sum[i] + sum[i + half];
    return sum[0];
  }
};
#define LOCKSTEP_LANES(expression)                       \
  ScalarVec r;                                           \
  for (int i = 0; i < 16; ++i) r.lane[i] = (expression); \
  return r
inline ScalarVec operator+(const ScalarVec& a, const ScalarVec& b) { LOCKSTEP_LANES(a.lane[i] + b.lane[i]); }
inline ScalarVec operator-(const ScalarVec& a, const ScalarVec& b) { LOCKSTEP_LANES(a.lane[i] - b.lane[i]); }
inline ScalarVec operator*(const ScalarVec& a, const ScalarVec& b) { LOCKSTEP_LANES(a.lane[i] * b.lane[i]); }
inline ScalarVec operator/(const ScalarVec& a, const ScalarVec& b) { LOCKSTEP_LANES(a.lane[i] / b.lane[i]); }
inline ScalarVec fma(const ScalarVec& a, const ScalarVec& b, const ScalarVec& c) { LOCKSTEP_LANES(__builtin_fmaf(a.lane[i], b.lane[i], c.lane[i])); }
// max(a, b) = a > b ? a : b and min(a, b) = a < b ? a : b, lane by lane: b where a NaN is present or both are zero.
inline ScalarVec max(const ScalarVec& a, const ScalarVec& b) { LOCKSTEP_LANES(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]); }
inline ScalarVec min(const ScalarVec& a, const ScalarVec& b) { LOCKSTEP_LANES(a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]); }
inline ScalarVec sqrt(const ScalarVec& a) { LOCKSTEP_LANES(__builtin_sqrtf(a.lane[i])); }
// a > b ? x : y
inline ScalarVec select_gt(const ScalarVec& a, const ScalarVec& b, const ScalarVec& x, const ScalarVec& y) {
  LOCKSTEP_LANES(a.lane[i] > b.lane[i] ? x.lane[i] : y.lane[i]);
}
// To the nearest integer, ties to even; |a| < 2^22.
inline ScalarVec round_nearest(const ScalarVec& a) { LOCKSTEP_LANES(__builtin_nearbyintf(a.lane[i])); }
// 2^n for integral n in [-126, 127].
inline ScalarVec pow2(const ScalarVec& n) { LOCKSTEP_LANES(bits_float(static_cast<std::uint32_t>(static_cast<std::int32_t>(n.lane[i]) + 127) << 23)); }
// a = mantissa * 2^exponent with mantissa in [0.5, 1), for positive normal a.
inline ScalarVec exponent_of(const ScalarVec& a) { LOCKSTEP_LANES(static_cast<float>(static_cast<std::int32_t>((float_bits(a.lane[i]) >> 23) & 0xff) - 126)); }
inline ScalarVec mantissa_of(const ScalarVec& a) { LOCKSTEP_LANES(bits_float((float_bits(a.lane[i]) & 0x007fffffu) | 0x3f000000u)); }
#undef LOCKSTEP_LANES
inline ScalarDouble to_double(const ScalarVec& a) {
  ScalarDouble r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i];
  return r;
}
inline ScalarVec to_float(const ScalarDouble& a) {
  ScalarVec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(a.lane[i]);
  return r;
}

}  // namespace lockstep
