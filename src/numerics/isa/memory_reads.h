// Reading memory in several ways, to find the fastest: the ruler of what a kernel reads (service/machine.h). AVX2, which the tree is compiled for.
//   std::uint64_t junk = read_memory({MemoryReadKind::prefetched, 4}, block, numbers);
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace lockstep {

// plain: the processor's own prefetching alone; prefetched: lines are asked for ahead; non_temporal: the same, past the caches.
enum class MemoryReadKind { plain, prefetched, non_temporal };
// `streams`: so many places are read in turn, a line of each: 1, 2, 4, 8 or 16.
struct MemoryRead {
  MemoryReadKind kind = MemoryReadKind::plain;
  int streams = 1;
};

template <MemoryReadKind kind, int kStreams>
inline std::uint64_t read_streams(const std::uint64_t* from, std::size_t numbers) {
  constexpr std::size_t kLine = 8, kAhead = 256;  // numbers of 8 bytes
  const std::size_t stream = numbers / kStreams / kLine * kLine;
  __m256i sum[kStreams];
  for (__m256i& s : sum) s = _mm256_setzero_si256();
  for (std::size_t i = 0; i < stream; i += kLine)
    for (int s = 0; s < kStreams; ++s) {
      const std::uint64_t* line = from + static_cast<std::size_t>(s) * stream + i;
      if constexpr (kind == MemoryReadKind::prefetched) _mm_prefetch(reinterpret_cast<const char*>(line + kAhead), _MM_HINT_T0);
      if constexpr (kind == MemoryReadKind::non_temporal) _mm_prefetch(reinterpret_cast<const char*>(line + kAhead), _MM_HINT_NTA);
      const auto* lanes = reinterpret_cast<const __m256i*>(line);
      sum[s] = _mm256_add_epi64(sum[s], _mm256_add_epi64(_mm256_load_si256(lanes), _mm256_load_si256(lanes + 1)));
    }
  for (int s = 1; s < kStreams; ++s) sum[0] = _mm256_add_epi64(sum[0], sum[s]);
  alignas(32) std::uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum[0]);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

template <MemoryReadKind kind>
inline std::uint64_t read_in_streams(int streams, const std::uint64_t* from, std::size_t numbers) {
  switch (streams) {
    case 1: return read_streams<kind, 1>(from, numbers);
    case 2: return read_streams<kind, 2>(from, numbers);
    case 4: return read_streams<kind, 4>(from, numbers);
    case 8: return read_streams<kind, 8>(from, numbers);
    default: return read_streams<kind, 16>(from, numbers);
  }
}

// The sum of `numbers` numbers (a multiple of 128; the block begins at a line, and a page more may be asked for ahead).
inline std::uint64_t read_memory(const MemoryRead& how, const std::uint64_t* from, std::size_t numbers) {
  if (how.kind == MemoryReadKind::plain) return read_in_streams<MemoryReadKind::plain>(how.streams, from, numbers);
  if (how.kind == MemoryReadKind::prefetched) return read_in_streams<MemoryReadKind::prefetched>(how.streams, from, numbers);
  return read_in_streams<MemoryReadKind::non_temporal>(how.streams, from, numbers);
}

}  // namespace lockstep
