// Reads memory in several ways to find the fastest, which measures the machine's read bandwidth (parity/machine.h). Needs AVX2, which the tree
// is compiled for.
//   std::uint64_t junk = read_memory({MemoryReadKind::prefetched, 4}, block, numbers);
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep {

// plain: hardware prefetching alone; prefetched: software prefetches ahead; non_temporal: the same, bypassing the caches.
enum class MemoryReadKind { plain, prefetched, non_temporal };
// `streams` addresses are read in turn, a cache line of each: 1, 2, 4, 8 or 16.
struct MemoryRead {
  MemoryReadKind kind = MemoryReadKind::plain;
  int streams = 1;
};

// The sum of `numbers` numbers (a multiple of 128; the block is aligned to a cache line, and up to a page beyond it may be prefetched).
std::uint64_t read_memory(const MemoryRead& how, const std::uint64_t* from, std::size_t numbers);

}  // namespace lockstep
