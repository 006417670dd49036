// Slices of sequences of random tokens whose pages stand one after another in a cache, for benchmarks of forwards behind what the cache holds.
//   const Batch batch(backend, slices_between(opened, 8, 128, 129, 9), kBenchmarkPage, false);   // a token of each of 8 streams at position 128
#pragma once
#include <cstdint>
#include <vector>

#include "base/philox.h"
#include "model/batch.h"
#include "serving/loading.h"

namespace lockstep {

inline constexpr std::int64_t kBenchmarkPage = 16;  // positions

inline std::int64_t pages_of(std::int64_t positions) { return (positions + kBenchmarkPage - 1) / kBenchmarkPage; }

// The sequences' positions [begin, end), each sequence with `pages` pages of its own.
inline std::vector<SequenceSlice> slices_between(const OpenedModel& opened, std::int64_t sequences, std::int64_t begin, std::int64_t end, std::int64_t pages) {
  std::vector<SequenceSlice> slices(static_cast<std::size_t>(sequences));
  for (std::int64_t s = 0; s < sequences; ++s) {
    SequenceSlice& slice = slices[static_cast<std::size_t>(s)];
    RandomSequence random(1, RandomStream::shuffle, static_cast<std::uint64_t>(s));
    for (std::int64_t t = 0; t < end; ++t) {
      const auto token = static_cast<std::int32_t>(random.uniform() * static_cast<double>(opened.model->facts().vocabulary));
      if (t >= begin) slice.tokens.push_back(token);
    }
    slice.begin = begin;
    for (std::int64_t p = 0; p < pages; ++p) slice.pages.push_back(static_cast<std::int32_t>(s * pages + p));
  }
  return slices;
}

}  // namespace lockstep
