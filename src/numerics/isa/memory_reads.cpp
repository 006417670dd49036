#include "numerics/isa/memory_reads.h"

#include <immintrin.h>

namespace lockstep {
namespace {
template <MemoryReadKind kind, int kStreams>
std::uint64_t read_streams(const std::uint64_t* from, std::size_t numbers) {
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
std::uint64_t read_in_streams(int streams, const std::uint64_t* from, std::size_t numbers) {
  switch (streams) {
    case 1:
      return read_streams<kind, 1>(from, numbers);
    case 2:
      return read_streams<kind, 2>(from, numbers);
    case 4:
      return read_streams<kind, 4>(from, numbers);
    case 8:
      return read_streams<kind, 8>(from, numbers);
    default:
      return read_streams<kind, 16>(from, numbers);
  }
}
}  // namespace

std::uint64_t read_memory(const MemoryRead& how, const std::uint64_t* from, std::size_t numbers) {
  if (how.kind == MemoryReadKind::plain) return read_in_streams<MemoryReadKind::plain>(how.streams, from, numbers);
  if (how.kind == MemoryReadKind::prefetched) return read_in_streams<MemoryReadKind::prefetched>(how.streams, from, numbers);
  return read_in_streams<MemoryReadKind::non_temporal>(how.streams, from, numbers);
}

}  // namespace lockstep
