// f32x16 as one register of AVX-512 (F, BW, DQ, VL). No bf16 dot instructions: they round differently.
#pragma once
#include <immintrin.h>

#include "numerics/element.h"
#include "numerics/isa/tiles.h"
#include "numerics/isa/transpose.h"

namespace lockstep {

struct Avx512Double {
  __m512d lo, hi;
  static Avx512Double set1(double x) {
    const __m512d v = _mm512_set1_pd(x);
    return {v, v};
  }
  static Avx512Double load(const double* p) { return {_mm512_loadu_pd(p), _mm512_loadu_pd(p + 8)}; }
  void store(double* p) const {
    _mm512_storeu_pd(p, lo);
    _mm512_storeu_pd(p + 8, hi);
  }
};
inline Avx512Double operator+(const Avx512Double& a, const Avx512Double& b) { return {_mm512_add_pd(a.lo, b.lo), _mm512_add_pd(a.hi, b.hi)}; }
inline Avx512Double operator-(const Avx512Double& a, const Avx512Double& b) { return {_mm512_sub_pd(a.lo, b.lo), _mm512_sub_pd(a.hi, b.hi)}; }
inline Avx512Double operator*(const Avx512Double& a, const Avx512Double& b) { return {_mm512_mul_pd(a.lo, b.lo), _mm512_mul_pd(a.hi, b.hi)}; }
inline Avx512Double floor(const Avx512Double& a) {
  constexpr int mode = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  return {_mm512_roundscale_pd(a.lo, mode), _mm512_roundscale_pd(a.hi, mode)};
}

struct Avx512Vec {
  using Elem = float;
  using Half = Bf16;
  using Double = Avx512Double;
  static constexpr int kRows = Avx512Tiles::kRows, kPanels = Avx512Tiles::kPanels;
  __m512 v;

  static __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static Avx512Vec set1(float x) { return {_mm512_set1_ps(x)}; }
  static Avx512Vec zero() { return {_mm512_setzero_ps()}; }
  static Avx512Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Avx512Vec load_partial(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
  static Avx512Vec widen16(__m256i h) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))}; }
  static Avx512Vec load(const Bf16* p) { return widen16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static Avx512Vec load_partial(const Bf16* p, int n) { return widen16(_mm256_maskz_loadu_epi16(first_lanes(n), p)); }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store_partial(float* p, int n) const { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
  __m256i round16() const {
    const __m512i u = _mm512_castps_si512(v);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), even), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet));
  }
  void store(Bf16* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), round16()); }
  void store_partial(Bf16* p, int n) const { _mm256_mask_storeu_epi16(p, first_lanes(n), round16()); }
  void store_half(Bf16* p) const { store(p); }
  void store_half_partial(Bf16* p, int n) const { store_partial(p, n); }
  float extract(int i) const {
    float lanes[16];
    store(lanes);
    return lanes[i];
  }
  // Lanes i + (i + 8), then + 4, + 2, + 1: the tree of dot16.
  float tree_sum() const {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  static void tree_sums(const float (*lanes)[16], float* out) {  // of four vectors
    __m256 eight[4];
    for (int i = 0; i < 4; ++i) eight[i] = _mm256_add_ps(_mm256_load_ps(lanes[i]), _mm256_load_ps(lanes[i] + 8));
    tree_sums_of_eight(eight, out);
  }
};
inline Avx512Vec operator+(const Avx512Vec& a, const Avx512Vec& b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Avx512Vec operator-(const Avx512Vec& a, const Avx512Vec& b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Avx512Vec operator*(const Avx512Vec& a, const Avx512Vec& b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Avx512Vec operator/(const Avx512Vec& a, const Avx512Vec& b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Avx512Vec fma(const Avx512Vec& a, const Avx512Vec& b, const Avx512Vec& c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Avx512Vec max(const Avx512Vec& a, const Avx512Vec& b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Avx512Vec min(const Avx512Vec& a, const Avx512Vec& b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Avx512Vec sqrt(const Avx512Vec& a) { return {_mm512_sqrt_ps(a.v)}; }
inline Avx512Vec select_gt(const Avx512Vec& a, const Avx512Vec& b, const Avx512Vec& x, const Avx512Vec& y) {
  return {_mm512_mask_mov_ps(y.v, _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ), x.v)};
}
inline Avx512Vec round_nearest(const Avx512Vec& a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Avx512Vec pow2(const Avx512Vec& n) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvttps_epi32(n.v), _mm512_set1_epi32(127)), 23))};
}
inline Avx512Vec exponent_of(const Avx512Vec& a) {
  const __m512i field = _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(a.v), 23), _mm512_set1_epi32(0xff));
  return {_mm512_cvtepi32_ps(_mm512_sub_epi32(field, _mm512_set1_epi32(126)))};
}
inline Avx512Vec mantissa_of(const Avx512Vec& a) {
  return {_mm512_castsi512_ps(_mm512_or_si512(_mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x007fffff)), _mm512_set1_epi32(0x3f000000)))};
}
inline Avx512Double to_double(const Avx512Vec& a) { return {_mm512_cvtps_pd(_mm512_castps512_ps256(a.v)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1))}; }
inline Avx512Vec to_float(const Avx512Double& a) { return {_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(a.lo)), _mm512_cvtpd_ps(a.hi), 1)}; }

}  // namespace lockstep
