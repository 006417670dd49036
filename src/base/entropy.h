// Bits that nobody can foresee, from the system: for ids, and for seeds of requests that name none. (std::random_device asks the
// processor what it can at each construction, which costs a virtual machine some 10 us.) Any thread. Error io when there are none.
//   const std::uint64_t seed = given.value_or(random_seed());
#pragma once
#include <cstdint>

namespace lockstep {

std::uint64_t random_bits();
// 53 bits: what every JSON reader gets back exactly.
inline std::uint64_t random_seed() { return random_bits() >> 11; }

}  // namespace lockstep
