#include "base/entropy.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace lockstep {

std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  while (getrandom(&bits, sizeof bits, 0) != sizeof bits)  // so few come whole or not at all
    if (errno != EINTR) fail(ErrorCode::io, "the system gives no random bits: {}", std::strerror(errno));
  return bits;
}

}  // namespace lockstep
