// Moves floats between vectors, with AVX2, which every instruction set here has: transposes blocks of them, and adds the lanes of several vectors at once.
// Included before an instruction set's pragma.
//   transpose_eight(out, 16, in, 16);
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace lockstep {

// Copies 8 x 8 floats, rows `stride` apart, transposed.
static inline void transpose_eight(float* out, std::int64_t out_stride, const float* in, std::int64_t stride) {
  __m256 a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(in + i * stride);
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
    a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
    a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * out_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * out_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
  }
}

// out[i], of four vectors: lanes j and j + 4 added, then + 2, + 1.
static inline void tree_sums_of_eight(const __m256 (&v)[4], float* out) {
  const auto halves = [](__m256 a, __m256 b) {
    return _mm256_castps_pd(_mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31)));
  };
  const __m256d even = halves(v[0], v[2]), odd = halves(v[1], v[3]);
  const __m256 two = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(even, odd)), _mm256_castpd_ps(_mm256_unpackhi_pd(even, odd)));
  const __m256 one = _mm256_add_ps(_mm256_shuffle_ps(two, two, 0x88), _mm256_shuffle_ps(two, two, 0xdd));  // 0 and 1 in the low half, 2 and 3 in the high one
  _mm_storeu_ps(out, _mm_movelh_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1)));
}

}  // namespace lockstep
