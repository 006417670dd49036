// integer_dot_scalar.h with AVX-512, and with VNNI where the machine has it. vpdpbusd takes weights as stored,
// unsigned, so the offset is subtracted first: 128 (8 bits) or 8 (4 bits) times the sum of the row's q. Without VNNI it works as
// integer_dot_avx2.h. The instruction is inline assembly, since the compiler is not told that the machine has it.
#pragma once
#include "numerics/isa/avx512.h"
#include "numerics/isa/low_bit_decode.h"

namespace lockstep {

template <bool kVnni>
struct Avx512IntegerDot {
  using Stored = std::int8_t;
  using Weights = __m512i;
  struct Row {
    const Stored* q;
  };
  using Sum = __m512i;

  template <int Bits>
  static Weights load(const std::uint8_t* bytes) {
    const __m512i w = _mm512_loadu_si512(bytes);
    return Bits == 8 && !kVnni ? _mm512_xor_si512(w, _mm512_set1_epi8(static_cast<char>(-128))) : w;
  }
  static Weights low(const Weights& w) { return _mm512_and_si512(w, _mm512_set1_epi8(15)); }
  static Weights high(const Weights& w) { return low(_mm512_srli_epi16(w, 4)); }
  static Row row(const Stored* q) { return {q}; }
  template <int Bits>
  static Sum start(std::int32_t row_sum) {
    return kVnni ? _mm512_set1_epi32((Bits == 8 ? -128 : -8) * row_sum) : _mm512_setzero_si512();
  }
  template <int Bits>
  static void add(Sum& sum, const Weights& w, const Row& x) {
    if constexpr (kVnni) {
      asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const std::int32_t*>(x.q)));
    } else {
      std::int32_t four;
      __builtin_memcpy(&four, x.q, 4);
      const __m512i q = _mm512_set1_epi32(four);
      if constexpr (Bits == 4) {
        sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(w, q));
      } else {
        const __m512i signed_w = _mm512_mask_sub_epi8(w, _mm512_movepi8_mask(q), _mm512_setzero_si512(), w);
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_abs_epi8(q), signed_w), _mm512_set1_epi16(1)));
      }
    }
  }
  template <int Bits>
  static Avx512Vec finish(Sum sum, std::int32_t row_sum) {
    if constexpr (Bits == 4 && !kVnni) sum = _mm512_add_epi32(_mm512_madd_epi16(sum, _mm512_set1_epi16(1)), _mm512_set1_epi32(-8 * row_sum));
    return {_mm512_cvtepi32_ps(sum)};
  }

  static float largest_magnitude(const Avx512Vec& a, const Avx512Vec& b) {
    const __m512i sign = _mm512_set1_epi32(0x7fffffff);
    const __m512i bits = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a.v), sign), _mm512_and_si512(_mm512_castps_si512(b.v), sign));
    return bits_float(static_cast<std::uint32_t>(_mm512_reduce_max_epi32(bits)));
  }
  static std::int32_t store(const Avx512Vec& a, const Avx512Vec& b, Stored* q) {
    const __m512i x = _mm512_cvtps_epi32(a.v), y = _mm512_cvtps_epi32(b.v);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(x));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(y));
    return _mm512_reduce_add_epi32(_mm512_add_epi32(x, y));
  }
  static Stored zero() { return 0; }
  static Avx512Vec scales(const std::uint8_t* bytes) { return Avx512Vec::load(reinterpret_cast<const Bf16*>(bytes)); }
};

template <>
struct LowBitDecode<Avx512Vec> {
  static constexpr bool kVectors = true;
  static Avx512Vec e4m3(const std::uint8_t* p) {
    const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x80)), 24);
    const __m512i magnitude = _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x7f)), 20);
    return {_mm512_mul_ps(_mm512_castsi512_ps(_mm512_or_si512(sign, magnitude)), _mm512_set1_ps(0x1p120f))};
  }
  static Avx512Vec nibbles(const std::uint8_t* p, int shift) {
    const __m512i word = _mm512_srl_epi32(_mm512_loadu_si512(p), _mm_cvtsi32_si128(shift));
    return {_mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_and_si512(word, _mm512_set1_epi32(15)), _mm512_set1_epi32(8)))};
  }
  static Avx512Vec e2m1(const std::uint8_t* p, int shift) {
    const __m512i word = _mm512_srl_epi32(_mm512_loadu_si512(p), _mm_cvtsi32_si128(shift));
    const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(word, _mm512_set1_epi32(8)), 28);
    const __m512i magnitude = _mm512_slli_epi32(_mm512_and_si512(word, _mm512_set1_epi32(7)), 22);
    return {_mm512_mul_ps(_mm512_castsi512_ps(_mm512_or_si512(sign, magnitude)), _mm512_set1_ps(0x1p126f))};
  }
  static Avx512Vec exponents(const std::uint8_t* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 23))};
  }
  static Avx512Vec halves(const std::uint8_t* p) { return Avx512Vec::load(reinterpret_cast<const Bf16*>(p)); }
  using Magnitudes = __m512i;
  static Magnitudes no_magnitudes() { return _mm512_setzero_si512(); }
  static Magnitudes larger(Magnitudes so_far, const Avx512Vec& x) {
    return _mm512_max_epu32(so_far, _mm512_and_si512(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x7fffffff)));
  }
  static std::uint32_t magnitude(Magnitudes all) { return static_cast<std::uint32_t>(_mm512_reduce_max_epu32(all)); }
  static Avx512Vec nearest(const Avx512Vec& x) {
    const __m512i all = _mm512_castps_si512(x.v), u = _mm512_and_si512(all, _mm512_set1_epi32(0x7fffffff));
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(u, 20), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_and_si512(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7ffff)), even), _mm512_set1_epi32(~0xfffff));
    const __m512 normal = _mm512_castsi512_ps(_mm512_min_epu32(rounded, _mm512_castps_si512(_mm512_set1_ps(448.0f))));
    const __m512 magnitude = _mm512_castsi512_ps(u), shift = _mm512_set1_ps(0x1p14f);
    const __m512 small = _mm512_sub_ps(_mm512_add_ps(magnitude, shift), shift);
    const __mmask16 is_small = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0x1p-6f), _CMP_LT_OQ);
    const __m512i number = _mm512_castps_si512(_mm512_mask_blend_ps(is_small, normal, small));
    return {_mm512_castsi512_ps(_mm512_or_si512(number, _mm512_andnot_si512(_mm512_set1_epi32(0x7fffffff), all)))};
  }
};

template <class V, class F>
inline void with_integer_dot(const F& f) {
  if (__builtin_cpu_supports("avx512vnni")) f(Avx512IntegerDot<true>{});
  else f(Avx512IntegerDot<false>{});
}

}  // namespace lockstep
