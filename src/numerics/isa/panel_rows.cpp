#include "numerics/isa/panel_rows.h"

#include <cstring>

#include "numerics/isa/transpose.h"

namespace lockstep {
namespace {
constexpr std::int64_t kRows = 16;

// 16 x 16 words of 2 bytes, transposed.
void transpose_halves(const std::uint16_t* in, std::uint16_t* out, std::int64_t stride) {
  __m256i a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 16 * i));
  for (int i = 0; i < 16; i += 2) {  // pairs of columns
    b[i] = _mm256_unpacklo_epi16(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // fours of them; a[i + j] has rows 2 j, 2 j + 1 and those 8 further
    a[i] = _mm256_unpacklo_epi32(b[i], b[i + 2]);
    a[i + 1] = _mm256_unpackhi_epi32(b[i], b[i + 2]);
    a[i + 2] = _mm256_unpacklo_epi32(b[i + 1], b[i + 3]);
    a[i + 3] = _mm256_unpackhi_epi32(b[i + 1], b[i + 3]);
  }
  const auto store = [&](int row, __m256i words) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + row * stride), words); };
  for (int j = 0; j < 4; ++j) {
    const __m256i even = _mm256_unpacklo_epi64(a[j], a[4 + j]), odd = _mm256_unpackhi_epi64(a[j], a[4 + j]);
    const __m256i even_after = _mm256_unpacklo_epi64(a[8 + j], a[12 + j]), odd_after = _mm256_unpackhi_epi64(a[8 + j], a[12 + j]);
    store(2 * j, _mm256_permute2x128_si256(even, even_after, 0x20));
    store(2 * j + 1, _mm256_permute2x128_si256(odd, odd_after, 0x20));
    store(2 * j + 8, _mm256_permute2x128_si256(even, even_after, 0x31));
    store(2 * j + 9, _mm256_permute2x128_si256(odd, odd_after, 0x31));
  }
}

template <class Word>
void copy_columns(const Word* panel, std::int64_t begin, std::int64_t end, Word* to, std::int64_t stride) {
  for (std::int64_t c = begin; c < end; ++c)
    for (std::int64_t n = 0; n < kRows; ++n) to[n * stride + c] = panel[c * kRows + n];
}
}  // namespace

void panel_rows(const void* panel, int width, std::int64_t columns, void* to, std::int64_t stride) {
  if (width == 2) {
    const auto* from = static_cast<const std::uint16_t*>(panel);
    auto* rows = static_cast<std::uint16_t*>(to);
    const std::int64_t whole = columns / 16 * 16;
    for (std::int64_t c = 0; c < whole; c += 16) transpose_halves(from + c * kRows, rows + c, stride);
    copy_columns(from, whole, columns, rows, stride);
    return;
  }
  const auto* from = static_cast<const float*>(panel);  // moved, never computed with
  auto* rows = static_cast<float*>(to);
  const std::int64_t whole = columns / 8 * 8;
  for (std::int64_t c = 0; c < whole; c += 8) {
    transpose_eight(rows + c, stride, from + c * kRows, kRows);
    transpose_eight(rows + 8 * stride + c, stride, from + c * kRows + 8, kRows);
  }
  copy_columns(static_cast<const std::uint32_t*>(panel), whole, columns, static_cast<std::uint32_t*>(to), stride);
}

}  // namespace lockstep
