// The kill_point (base/file.h) of programs that are made for tests: build/lockstep_faults and test_*. Environment:
//   LOCKSTEP_KILL_AT=point:n   the n-th pass (from 1) through this point raises SIGKILL
//   LOCKSTEP_FAIL_AT=point:n   the n-th pass throws Error io "No space left on device"
//   LOCKSTEP_GIVE_WAY=seed     kernels in their smallest parts, other work at every boundary (base/give_way_everywhere.h)
// Without the variables it does nothing.
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/give_way_everywhere.h"
#include "kernels/prelude.h"

namespace lockstep {
namespace {
// True when the variable says "point:n" and this is the n-th pass through that point.
bool is_due(const char* variable, std::string_view point, std::atomic<long>& passes) {
  const char* value = std::getenv(variable);
  if (!value || !*value) return false;
  const std::string_view text = value;
  const std::size_t colon = text.rfind(':');
  long wanted = 0;
  const char* end = text.data() + text.size();
  if (colon == std::string_view::npos || std::from_chars(text.data() + colon + 1, end, wanted).ptr != end || wanted < 1)
    fail(ErrorCode::invalid_argument, "{} is '{}', allowed is POINT:N with N at least 1", variable, text);
  return text.substr(0, colon) == point && passes.fetch_add(1) + 1 == wanted;
}

std::uint64_t give_way_seed() {
  const char* value = std::getenv("LOCKSTEP_GIVE_WAY");
  if (!value || !*value) return 0;
  const std::string_view text = value;
  std::uint64_t seed = 0;
  if (const char* end = text.data() + text.size(); std::from_chars(text.data(), end, seed).ptr != end || seed == 0)
    fail(ErrorCode::invalid_argument, "LOCKSTEP_GIVE_WAY is '{}', allowed is a number from 1", text);
  return seed;
}

template <class T, int Use = 0>
void fill_scratch() {
  constexpr std::size_t kSize = 4096;
  std::fill_n(thread_scratch<T, Use>(kSize), kSize,
              std::numeric_limits<T>::has_quiet_NaN ? std::numeric_limits<T>::quiet_NaN() : std::numeric_limits<T>::max());
}
}  // namespace

void kill_point(std::string_view point) {
  static std::atomic<long> kill_passes{0}, fail_passes{0};
  if (is_due("LOCKSTEP_KILL_AT", point, kill_passes)) raise(SIGKILL);
  if (is_due("LOCKSTEP_FAIL_AT", point, fail_passes)) fail(ErrorCode::io, "cannot write at {}: {}", point, std::generic_category().message(ENOSPC));
}

bool gives_way_everywhere() {
  static const bool everywhere = give_way_seed() != 0;
  return everywhere;
}

void overwrite_scratch() {
  fill_scratch<float>();
  fill_scratch<float, 1>();
  fill_scratch<double>();
  fill_scratch<double, 1>();
  fill_scratch<std::int32_t>();
}

std::size_t drawn_turn(std::size_t count) {
  static std::atomic<std::uint64_t> draws{0};
  static const std::uint64_t seed = give_way_seed();
  const std::uint64_t drawn = (seed + ++draws) * 0x9e3779b97f4a7c15;  // the golden ratio: neighbours are far apart
  return static_cast<std::size_t>((drawn >> 32) % count);
}

}  // namespace lockstep
