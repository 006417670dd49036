// Unpredictable bits from the operating system, for ids and for seeds of requests that name none. Any thread. Error io when there are none.
//   const std::uint64_t seed = given.value_or(random_seed());
// Not std::random_device, which queries the processor at each construction and costs some 10 us on a virtual machine.
#pragma once
#include <cstdint>

namespace lockstep {

std::uint64_t random_bits();
// 53 bits, which every JSON reader reproduces exactly.
inline std::uint64_t random_seed() { return random_bits() >> 11; }

}  // namespace lockstep
