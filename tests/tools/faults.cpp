// The kill_point (base/file.h) of programs that are made for tests: build/lockstep_faults and test_*. Environment:
//   LOCKSTEP_KILL_AT=point:n   the n-th pass (from 1) through this point raises SIGKILL
//   LOCKSTEP_FAIL_AT=point:n   the n-th pass throws Error io "No space left on device"
// Without the variables it does nothing.
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file.h"

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
}  // namespace

void kill_point(std::string_view point) {
  static std::atomic<long> kill_passes{0}, fail_passes{0};
  if (is_due("LOCKSTEP_KILL_AT", point, kill_passes)) raise(SIGKILL);
  if (is_due("LOCKSTEP_FAIL_AT", point, fail_passes)) fail(ErrorCode::io, "cannot write at {}: {}", point, std::generic_category().message(ENOSPC));
}

}  // namespace lockstep
