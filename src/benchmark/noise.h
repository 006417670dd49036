// Input values for benchmarks: uniform in [-0.5, 0.5), the same for the same seed.
//   const std::vector<float> values = noise(1024, 1);
#pragma once
#include <cstdint>
#include <vector>

#include "base/philox.h"

namespace lockstep {

inline std::vector<float> noise(std::int64_t count, std::uint64_t seed) {
  RandomSequence random(seed, RandomStream::sampling, 0);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = static_cast<float>(random.uniform() - 0.5);
  return values;
}

}  // namespace lockstep
