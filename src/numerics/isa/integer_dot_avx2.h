// integer_dot_scalar.h with AVX2. vpmaddubsw takes an unsigned and a signed operand and saturates at 16 bits. With 8-bit weights, the weight
// gets the sign of the input and is multiplied by the input's magnitude, so a pair is at most 2 * 127 * 127 < 2^15; 4-bit weights are
// unsigned as stored, and a lane's eight pairs of a group are at most 8 * 2 * 15 * 127 < 2^15.
#pragma once
#include "numerics/isa/avx2.h"
#include "numerics/isa/low_bit_decode.h"

namespace lockstep {

struct Avx2IntegerDot {
  using Stored = std::int8_t;
  struct Weights {
    __m256i lo, hi;
  };  // outputs 0..7, 8..15
  struct Row {
    __m256i q, magnitude;
  };
  struct Sum {
    __m256i lo, hi;
  };

  template <int Bits>
  static Weights load(const std::uint8_t* bytes) {
    Weights w{_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 32))};
    if constexpr (Bits == 8) {
      const __m256i zero = _mm256_set1_epi8(static_cast<char>(-128));
      w = {_mm256_xor_si256(w.lo, zero), _mm256_xor_si256(w.hi, zero)};
    }
    return w;
  }
  static Weights low(const Weights& w) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(w.lo, mask), _mm256_and_si256(w.hi, mask)};
  }
  static Weights high(const Weights& w) { return low({_mm256_srli_epi16(w.lo, 4), _mm256_srli_epi16(w.hi, 4)}); }
  static Row row(const Stored* q) {
    std::int32_t four;
    __builtin_memcpy(&four, q, 4);
    const __m256i x = _mm256_set1_epi32(four);
    return {x, _mm256_abs_epi8(x)};
  }
  template <int Bits>
  static Sum start(std::int32_t row_sum) {
    return {_mm256_setzero_si256(), _mm256_setzero_si256()};
  }
  template <int Bits>
  static __m256i added(__m256i sum, __m256i w, const Row& x) {
    if constexpr (Bits == 4) return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x.q));
    const __m256i pairs = _mm256_maddubs_epi16(x.magnitude, _mm256_sign_epi8(w, x.q));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  template <int Bits>
  static void add(Sum& sum, const Weights& w, const Row& x) {
    sum = {added<Bits>(sum.lo, w.lo, x), added<Bits>(sum.hi, w.hi, x)};
  }
  template <int Bits>
  static Avx2Vec finish(Sum sum, std::int32_t row_sum) {
    if constexpr (Bits == 4) {
      const __m256i ones = _mm256_set1_epi16(1), zero = _mm256_set1_epi32(-8 * row_sum);
      sum = {_mm256_add_epi32(_mm256_madd_epi16(sum.lo, ones), zero), _mm256_add_epi32(_mm256_madd_epi16(sum.hi, ones), zero)};
    }
    return {_mm256_cvtepi32_ps(sum.lo), _mm256_cvtepi32_ps(sum.hi)};
  }

  static float largest_magnitude(const Avx2Vec& a, const Avx2Vec& b) {
    const __m256i sign = _mm256_set1_epi32(0x7fffffff);
    const auto bits = [&](__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), sign); };
    const __m256i eight = _mm256_max_epi32(_mm256_max_epi32(bits(a.lo), bits(a.hi)), _mm256_max_epi32(bits(b.lo), bits(b.hi)));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return bits_float(static_cast<std::uint32_t>(_mm_cvtsi128_si32(four)));
  }
  static std::int32_t store(const Avx2Vec& a, const Avx2Vec& b, Stored* q) {
    const __m256i n[4] = {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi), _mm256_cvtps_epi32(b.lo), _mm256_cvtps_epi32(b.hi)};
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));  // quads 0 2 4 6 1 3 5 7
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
    const __m256i eight = _mm256_add_epi32(_mm256_add_epi32(n[0], n[1]), _mm256_add_epi32(n[2], n[3]));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
  }
  static Stored zero() { return 0; }
  static Avx2Vec scales(const std::uint8_t* bytes) { return Avx2Vec::load(reinterpret_cast<const Bf16*>(bytes)); }
};

template <>
struct LowBitDecode<Avx2Vec> {
  static constexpr bool kVectors = true;
  static Avx2Vec e4m3(const std::uint8_t* p) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {e4m3_of(_mm256_cvtepu8_epi32(codes)), e4m3_of(_mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8)))};
  }
  static Avx2Vec nibbles(const std::uint8_t* p, int shift) {
    const __m128i by = _mm_cvtsi32_si128(shift);
    const auto of = [&](const std::uint8_t* at) {
      const __m256i word = _mm256_srl_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)), by);
      return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(word, _mm256_set1_epi32(15)), _mm256_set1_epi32(8)));
    };
    return {of(p), of(p + 32)};
  }
  static Avx2Vec e2m1(const std::uint8_t* p, int shift) {
    const __m128i by = _mm_cvtsi32_si128(shift);
    const auto of = [&](const std::uint8_t* at) {
      const __m256i word = _mm256_srl_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)), by);
      const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(word, _mm256_set1_epi32(8)), 28);
      const __m256i magnitude = _mm256_slli_epi32(_mm256_and_si256(word, _mm256_set1_epi32(7)), 22);
      return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_or_si256(sign, magnitude)), _mm256_set1_ps(0x1p126f));
    };
    return {of(p), of(p + 32)};
  }
  static Avx2Vec exponents(const std::uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const auto of = [](__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(x), 23)); };
    return {of(bytes), of(_mm_srli_si128(bytes, 8))};
  }
  static Avx2Vec halves(const std::uint8_t* p) { return Avx2Vec::load(reinterpret_cast<const Bf16*>(p)); }
  using Magnitudes = __m256i;
  static Magnitudes no_magnitudes() { return _mm256_setzero_si256(); }
  static Magnitudes larger(Magnitudes so_far, const Avx2Vec& x) {
    const auto of = [](__m256 half) { return _mm256_and_si256(_mm256_castps_si256(half), _mm256_set1_epi32(0x7fffffff)); };
    return _mm256_max_epu32(so_far, _mm256_max_epu32(of(x.lo), of(x.hi)));
  }
  static std::uint32_t magnitude(Magnitudes all) {
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1))));
  }
  static Avx2Vec nearest(const Avx2Vec& x) { return {nearest_of(x.lo), nearest_of(x.hi)}; }

 private:
  static __m256 nearest_of(__m256 x) {
    const __m256i all = _mm256_castps_si256(x), u = _mm256_and_si256(all, _mm256_set1_epi32(0x7fffffff));
    const __m256i even = _mm256_and_si256(_mm256_srli_epi32(u, 20), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_and_si256(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7ffff)), even), _mm256_set1_epi32(~0xfffff));
    const __m256 normal = _mm256_castsi256_ps(_mm256_min_epu32(rounded, _mm256_castps_si256(_mm256_set1_ps(448.0f))));
    const __m256 magnitude = _mm256_castsi256_ps(u), shift = _mm256_set1_ps(0x1p14f);
    const __m256 small = _mm256_sub_ps(_mm256_add_ps(magnitude, shift), shift);
    const __m256i number = _mm256_castps_si256(_mm256_blendv_ps(normal, small, _mm256_cmp_ps(magnitude, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ)));
    return _mm256_castsi256_ps(_mm256_or_si256(number, _mm256_andnot_si256(_mm256_set1_epi32(0x7fffffff), all)));
  }
  static __m256 e4m3_of(__m256i code) {
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x80)), 24);
    const __m256i magnitude = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x7f)), 20);
    return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_or_si256(sign, magnitude)), _mm256_set1_ps(0x1p120f));
  }
};

template <class V, class F>
inline void with_integer_dot(const F& f) {
  f(Avx2IntegerDot{});
}

}  // namespace lockstep
