// Bits that nobody can foresee, from the system: for ids, and for seeds of requests that name none. Any thread.
//   const std::uint64_t seed = given.value_or(random_seed());
#pragma once
#include <cstdint>
#include <random>

namespace lockstep {

inline std::uint64_t random_bits() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}
// 53 bits: what every JSON reader gets back exactly.
inline std::uint64_t random_seed() { return random_bits() >> 11; }

}  // namespace lockstep
