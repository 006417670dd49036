// Reading memory in several ways, to find the fastest: the ruler of what a kernel reads (parity/machine.h). AVX2, which the tree is compiled for.
//   std::uint64_t junk = read_memory({MemoryReadKind::prefetched, 4}, block, numbers);
#pragma once
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

// The sum of `numbers` numbers (a multiple of 128; the block begins at a line, and a page more may be asked for ahead).
std::uint64_t read_memory(const MemoryRead& how, const std::uint64_t* from, std::size_t numbers);

}  // namespace lockstep
