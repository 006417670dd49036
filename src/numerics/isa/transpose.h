// Transposes blocks of floats, with AVX2, which every instruction set here has. Included before an instruction set's pragma.
//   transpose_eight(out, 16, in, 16);
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace lockstep {

// Copies 8 x 8 floats, rows `stride` apart, transposed.
inline void transpose_eight(float* out, std::int64_t out_stride, const float* in, std::int64_t stride) {
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

}  // namespace lockstep
