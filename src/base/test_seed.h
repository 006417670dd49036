// The seed of a test that draws: a new one each run, printed, or that of LOCKSTEP_FUZZ_SEED, as ./check --fuzz has it. Tests only.
//   const std::uint64_t seed = test_seed(); SCOPED_TRACE(seed); RandomSequence draws(seed, RandomStream::fuzz);
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace lockstep {

inline std::uint64_t test_seed() {
  const char* named = std::getenv("LOCKSTEP_FUZZ_SEED");
  const std::uint64_t seed = named && *named ? std::strtoull(named, nullptr, 10) : std::random_device()();
  std::printf("LOCKSTEP_FUZZ_SEED=%llu repeats it\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

}  // namespace lockstep
