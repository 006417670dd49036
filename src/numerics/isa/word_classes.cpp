#include "numerics/isa/word_classes.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>

namespace lockstep {
namespace {
constexpr int kBytes = 32;  // of a vector

__m256i load(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }
// Asks for what is read some lines later. Where most words are equal the loop is memory's alone, and the processor asks for too few lines by itself, and for
// none beyond a page. Harmless beyond the end.
constexpr std::uintptr_t kBytesAhead = 2048;
void fetch_ahead(const char* at) { __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(at) + kBytesAhead)); }
std::uint64_t bits_of(__m256i bytes) { return static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes)); }

// A bit for each of 64 words that are equal.
std::uint64_t equal_bytes(const char* a, const char* b) {
  return bits_of(_mm256_cmpeq_epi8(load(a), load(b))) | bits_of(_mm256_cmpeq_epi8(load(a + kBytes), load(b + kBytes))) << 32;
}
std::uint64_t equal_halves(const char* a, const char* b) {
  std::uint64_t bits = 0;
  for (int i = 0; i < 2; ++i, a += 2 * kBytes, b += 2 * kBytes) {
    const __m256i both = _mm256_packs_epi16(_mm256_cmpeq_epi16(load(a), load(b)), _mm256_cmpeq_epi16(load(a + kBytes), load(b + kBytes)));
    bits |= bits_of(_mm256_permute4x64_epi64(both, 0xd8)) << (32 * i);  // packs works within 128 bits
  }
  return bits;
}
std::uint64_t equal_words(const char* a, const char* b) {
  std::uint64_t bits = 0;
  for (int i = 0; i < 8; ++i)
    bits |= static_cast<std::uint64_t>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(load(a + kBytes * i), load(b + kBytes * i))))) << (8 * i);
  return bits;
}

// Fields of 32 words as bytes.
__m256i fields_1(const char* at, __m128i shift, __m256i mask) { return _mm256_and_si256(_mm256_srl_epi16(load(at), shift), mask); }
__m256i fields_2(const char* at, __m128i shift, __m256i mask) {
  const __m256i a = _mm256_and_si256(_mm256_srl_epi16(load(at), shift), mask), b = _mm256_and_si256(_mm256_srl_epi16(load(at + kBytes), shift), mask);
  return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
}
__m256i fields_4(const char* at, __m128i shift, __m256i mask) {
  const auto field = [&](int i) { return _mm256_and_si256(_mm256_srl_epi32(load(at + kBytes * i), shift), mask); };
  const __m256i mixed = _mm256_packus_epi16(_mm256_packs_epi32(field(0), field(1)), _mm256_packs_epi32(field(2), field(3)));
  return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
}  // namespace

void difference_masks(const void* a, const void* b, int width, std::int64_t blocks, std::uint64_t* to) {
  const auto *x = static_cast<const char*>(a), *y = static_cast<const char*>(b);
  const int bytes = 64 * width;
  for (std::int64_t block = 0; block < blocks; ++block, x += bytes, y += bytes) {
    // Most blocks are equal: that is found by fewer operations.
    __m256i any = _mm256_setzero_si256();
    for (int i = 0; i < bytes; i += 2 * kBytes) fetch_ahead(x + i), fetch_ahead(y + i);
    for (int i = 0; i < bytes; i += kBytes) any = _mm256_or_si256(any, _mm256_xor_si256(load(x + i), load(y + i)));
    if (_mm256_testz_si256(any, any)) to[block] = 0;
    else to[block] = ~(width == 1 ? equal_bytes(x, y) : width == 2 ? equal_halves(x, y) : equal_words(x, y));
  }
}

void word_classes(const void* words, const WordField& field, int low, int most, std::int64_t count, std::uint8_t* to) {
  const auto* at = static_cast<const char*>(words);
  const __m128i shift = _mm_cvtsi32_si128(field.shift);
  const __m256i lowest = _mm256_set1_epi8(static_cast<char>(low)), highest = _mm256_set1_epi8(static_cast<char>(most));
  const __m256i mask = field.width == 1   ? _mm256_set1_epi8(static_cast<char>(field.mask))
                       : field.width == 2 ? _mm256_set1_epi16(static_cast<short>(field.mask))
                                          : _mm256_set1_epi32(field.mask);
  const auto all = [&](auto fields) {
    for (std::int64_t i = 0; i < count; i += 32, at += 32 * field.width)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_min_epu8(_mm256_subs_epu8(fields(at, shift, mask), lowest), highest));
  };
  if (field.width == 1) all([](auto... x) { return fields_1(x...); });
  else if (field.width == 2) all([](auto... x) { return fields_2(x...); });
  else all([](auto... x) { return fields_4(x...); });
}

namespace {
// A comparison of 64 bytes is one instruction, whose result is the mask itself; and no branch depends on where a class's elements are.
#define LOCKSTEP_WIDE __attribute__((target("avx512f,avx512bw,popcnt,bmi,bmi2")))
bool has_wide() { return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("bmi2"); }
bool use_wide = has_wide();

struct WideMasks {
  std::uint64_t of[4];
};
LOCKSTEP_WIDE WideMasks wide_masks(const std::uint8_t* group, int c) {
  const __m512i wanted = _mm512_set1_epi8(static_cast<char>(c));
  return {{_mm512_cmpeq_epi8_mask(_mm512_loadu_si512(group), wanted), _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(group + 64), wanted),
           _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(group + 128), wanted), _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(group + 192), wanted)}};
}

LOCKSTEP_WIDE void count_classes_wide(const std::uint8_t* group, int classes, std::int32_t* counts) {
  const __m512i v0 = _mm512_loadu_si512(group), v1 = _mm512_loadu_si512(group + 64), v2 = _mm512_loadu_si512(group + 128), v3 = _mm512_loadu_si512(group + 192);
  for (int c = 0; c < classes; ++c) {
    const __m512i wanted = _mm512_set1_epi8(static_cast<char>(c));
    const auto count = [&](__m512i v) LOCKSTEP_WIDE { return _mm_popcnt_u64(_mm512_cmpeq_epi8_mask(v, wanted)); };
    counts[c] = static_cast<std::int32_t>((count(v0) + count(v1)) + (count(v2) + count(v3)));
  }
}

LOCKSTEP_WIDE int class_rank_wide(const std::uint8_t* group, int c, int end) {
  const WideMasks m = wide_masks(group, c);
  std::int64_t rank = 0;
  for (int block = 0; block < 4; ++block) {
    const int left = end - 64 * block;
    rank += _mm_popcnt_u64(_bzhi_u64(m.of[block], static_cast<unsigned>(std::clamp(left, 0, 64))));
  }
  return static_cast<int>(rank);
}

LOCKSTEP_WIDE int class_place_wide(const std::uint8_t* group, int c, int rank) {
  const WideMasks m = wide_masks(group, c);
  const auto first = static_cast<int>(_mm_popcnt_u64(m.of[0])), second = first + static_cast<int>(_mm_popcnt_u64(m.of[1])),
             third = second + static_cast<int>(_mm_popcnt_u64(m.of[2]));
  const int before[4] = {0, first, second, third};
  const int block = (rank >= first) + (rank >= second) + (rank >= third);
  return 64 * block + static_cast<int>(_tzcnt_u64(_pdep_u64(std::uint64_t{1} << (rank - before[block]), m.of[block])));
}
}  // namespace

bool use_wide_word_classes(bool wanted) {
  const bool before = use_wide;
  use_wide = wanted && has_wide();
  return before;
}

void count_classes(const std::uint8_t* group, int classes, std::int32_t* counts) {
  if (use_wide) return count_classes_wide(group, classes, counts);
  const __m256i v0 = load(group), v1 = load(group + 32), v2 = load(group + 64), v3 = load(group + 96), v4 = load(group + 128), v5 = load(group + 160),
                v6 = load(group + 192), v7 = load(group + 224);
  for (int c = 0; c < classes; ++c) {
    const __m256i wanted = _mm256_set1_epi8(static_cast<char>(c));
    const auto is = [&](__m256i v) { return _mm256_cmpeq_epi8(v, wanted); };  // -1 where it is
    const auto sum = [](__m256i a, __m256i b) { return _mm256_add_epi8(a, b); };
    const __m256i found = sum(sum(sum(is(v0), is(v1)), sum(is(v2), is(v3))), sum(sum(is(v4), is(v5)), sum(is(v6), is(v7))));  // -8 to 0
    const __m256i sums = _mm256_sad_epu8(_mm256_sub_epi8(_mm256_setzero_si256(), found), _mm256_setzero_si256());
    const __m128i halves = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    counts[c] = _mm_cvtsi128_si32(_mm_add_epi64(halves, _mm_unpackhi_epi64(halves, halves)));
  }
}

namespace {
std::uint64_t class_mask(const std::uint8_t* block, int c) {
  const __m256i wanted = _mm256_set1_epi8(static_cast<char>(c));
  return bits_of(_mm256_cmpeq_epi8(load(block), wanted)) | bits_of(_mm256_cmpeq_epi8(load(block + kBytes), wanted)) << 32;
}
}  // namespace

int class_rank(const std::uint8_t* group, int c, int end) {
  if (use_wide) return class_rank_wide(group, c, end);
  int rank = 0;
  for (; end >= 64; end -= 64, group += 64) rank += std::popcount(class_mask(group, c));
  return end > 0 ? rank + std::popcount(class_mask(group, c) & ((std::uint64_t{1} << end) - 1)) : rank;
}

int class_place(const std::uint8_t* group, int c, int rank) {
  if (use_wide) return class_place_wide(group, c, rank);
  int place = 0;
  std::uint64_t mask = class_mask(group, c);
  for (int here = std::popcount(mask); rank >= here; here = std::popcount(mask)) {
    rank -= here;
    place += 64;
    mask = class_mask(group + place, c);
  }
  for (int half = 32; half >= 8; half /= 2) {
    const int low = std::popcount(mask & ((std::uint64_t{1} << half) - 1));
    const bool above = rank >= low;
    rank -= above ? low : 0;
    mask >>= above ? half : 0;
    place += above ? half : 0;
  }
  for (; rank > 0; --rank) mask &= mask - 1;
  return place + std::countr_zero(mask);
}

}  // namespace lockstep
