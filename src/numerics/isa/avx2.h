// f32x16 as two 8-lane registers of AVX2 with FMA.
#pragma once
#include <immintrin.h>

#include "numerics/element.h"
#include "numerics/isa/tiles.h"
#include "numerics/isa/transpose.h"

namespace lockstep {

struct Avx2Double {
  __m256d q[4];
  static Avx2Double set1(double x) {
    const __m256d v = _mm256_set1_pd(x);
    return {{v, v, v, v}};
  }
  static Avx2Double load(const double* p) { return {{_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4), _mm256_loadu_pd(p + 8), _mm256_loadu_pd(p + 12)}}; }
  void store(double* p) const {
    for (int i = 0; i < 4; ++i) _mm256_storeu_pd(p + 4 * i, q[i]);
  }
};
#define LOCKSTEP_QUARTERS(f)   \
  return {                     \
    { f(0), f(1), f(2), f(3) } \
  }
#define F(i) _mm256_add_pd(a.q[i], b.q[i])
inline Avx2Double operator+(const Avx2Double& a, const Avx2Double& b) { LOCKSTEP_QUARTERS(F); }
#undef F
#define F(i) _mm256_sub_pd(a.q[i], b.q[i])
inline Avx2Double operator-(const Avx2Double& a, const Avx2Double& b) { LOCKSTEP_QUARTERS(F); }
#undef F
#define F(i) _mm256_mul_pd(a.q[i], b.q[i])
inline Avx2Double operator*(const Avx2Double& a, const Avx2Double& b) { LOCKSTEP_QUARTERS(F); }
#undef F
#define F(i) _mm256_floor_pd(a.q[i])
inline Avx2Double floor(const Avx2Double& a) { LOCKSTEP_QUARTERS(F); }
#undef F
#undef LOCKSTEP_QUARTERS

namespace avx2 {
inline float tree_sum8(__m256 eight) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline __m256i first_lanes(int n) {  // all ones in lanes < n
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline __m256 widen8(__m128i h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
inline __m128i round8(__m256 x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i even = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), even), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i r = _mm256_blendv_epi8(rounded, quiet, nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
}  // namespace avx2

struct Avx2Vec {
  using Elem = float;
  using Half = Bf16;
  using Double = Avx2Double;
  static constexpr int kRows = Avx2Tiles::kRows, kPanels = Avx2Tiles::kPanels;
  __m256 lo, hi;

  static Avx2Vec set1(float x) {
    const __m256 v = _mm256_set1_ps(x);
    return {v, v};
  }
  static Avx2Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Avx2Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static Avx2Vec load_partial(const float* p, int n) {
    if (n >= 8) return {_mm256_loadu_ps(p), _mm256_maskload_ps(p + 8, avx2::first_lanes(n - 8))};
    return {_mm256_maskload_ps(p, avx2::first_lanes(n)), _mm256_setzero_ps()};
  }
  static Avx2Vec load(const Bf16* p) {
    return {avx2::widen8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), avx2::widen8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static Avx2Vec load_partial(const Bf16* p, int n) {
    Bf16 buffer[16] = {};
    for (int i = 0; i < n; ++i) buffer[i] = p[i];
    return load(buffer);
  }
  void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  void store_partial(float* p, int n) const {
    _mm256_maskstore_ps(p, avx2::first_lanes(n), lo);
    if (n > 8) _mm256_maskstore_ps(p + 8, avx2::first_lanes(n - 8), hi);
  }
  void store(Bf16* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), avx2::round8(lo));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), avx2::round8(hi));
  }
  void store_partial(Bf16* p, int n) const {
    Bf16 buffer[16];
    store(buffer);
    for (int i = 0; i < n; ++i) p[i] = buffer[i];
  }
  void store_half(Bf16* p) const { store(p); }
  void store_half_partial(Bf16* p, int n) const { store_partial(p, n); }
  float extract(int i) const {
    float lanes[16];
    store(lanes);
    return lanes[i];
  }
  // Lanes i + (i + 8), then + 4, + 2, + 1: the tree of dot16.
  float tree_sum() const { return avx2::tree_sum8(_mm256_add_ps(lo, hi)); }
  static void tree_sums(const float (*lanes)[16], float* out) {  // of four vectors
    __m256 eight[4];
    for (int i = 0; i < 4; ++i) eight[i] = _mm256_add_ps(_mm256_load_ps(lanes[i]), _mm256_load_ps(lanes[i] + 8));
    tree_sums_of_eight(eight, out);
  }
};
inline Avx2Vec operator+(const Avx2Vec& a, const Avx2Vec& b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Avx2Vec operator-(const Avx2Vec& a, const Avx2Vec& b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Avx2Vec operator*(const Avx2Vec& a, const Avx2Vec& b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Avx2Vec operator/(const Avx2Vec& a, const Avx2Vec& b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Avx2Vec fma(const Avx2Vec& a, const Avx2Vec& b, const Avx2Vec& c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
inline Avx2Vec max(const Avx2Vec& a, const Avx2Vec& b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Avx2Vec min(const Avx2Vec& a, const Avx2Vec& b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline Avx2Vec sqrt(const Avx2Vec& a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline Avx2Vec select_gt(const Avx2Vec& a, const Avx2Vec& b, const Avx2Vec& x, const Avx2Vec& y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ)), _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ))};
}
inline Avx2Vec round_nearest(const Avx2Vec& a) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, mode), _mm256_round_ps(a.hi, mode)};
}
namespace avx2 {
inline __m256 pow2_8(__m256 n) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvttps_epi32(n), _mm256_set1_epi32(127)), 23)); }
inline __m256 exponent_8(__m256 a) {
  const __m256i field = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(a), 23), _mm256_set1_epi32(0xff));
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(field, _mm256_set1_epi32(126)));
}
inline __m256 mantissa_8(__m256 a) {
  return _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x007fffff)), _mm256_set1_epi32(0x3f000000)));
}
}  // namespace avx2
inline Avx2Vec pow2(const Avx2Vec& n) { return {avx2::pow2_8(n.lo), avx2::pow2_8(n.hi)}; }
inline Avx2Vec exponent_of(const Avx2Vec& a) { return {avx2::exponent_8(a.lo), avx2::exponent_8(a.hi)}; }
inline Avx2Vec mantissa_of(const Avx2Vec& a) { return {avx2::mantissa_8(a.lo), avx2::mantissa_8(a.hi)}; }
inline Avx2Double to_double(const Avx2Vec& a) {
  return {{_mm256_cvtps_pd(_mm256_castps256_ps128(a.lo)), _mm256_cvtps_pd(_mm256_extractf128_ps(a.lo, 1)), _mm256_cvtps_pd(_mm256_castps256_ps128(a.hi)),
           _mm256_cvtps_pd(_mm256_extractf128_ps(a.hi, 1))}};
}
inline Avx2Vec to_float(const Avx2Double& a) {
  return {_mm256_set_m128(_mm256_cvtpd_ps(a.q[1]), _mm256_cvtpd_ps(a.q[0])), _mm256_set_m128(_mm256_cvtpd_ps(a.q[3]), _mm256_cvtpd_ps(a.q[2]))};
}

}  // namespace lockstep
