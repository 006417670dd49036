#include "host/key_limit.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

KeyLimit::KeyLimit(std::int64_t most, std::int64_t percent) : most_(most), share_(std::max<std::int64_t>(1, (most * percent + 99) / 100)) {}

void KeyLimit::check_room(std::int64_t all, std::int64_t own, std::string_view what, std::string_view remedy, std::string_view options) const {
  const std::string_view stop = remedy.empty() ? "" : "; ";
  if (all >= most_)
    fail(ErrorCode::resource_exhausted, "this API key has {} {} and all keys together {}, allowed are {}{}{}", own, what, all, most_, stop, remedy);
  if (own >= share_)
    fail(ErrorCode::resource_exhausted, "this API key has {} {}, allowed are {} of the server's {} ({}){}{}", own, what, share_, most_, options, stop, remedy);
}

void KeyLimit::check_bytes(std::int64_t all, std::int64_t own, std::int64_t more, std::string_view what, std::string_view remedy,
                           std::string_view options) const {
  const auto megabytes = [](std::int64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / (1 << 20)); };
  if (own + more > share_)
    fail(ErrorCode::resource_exhausted, "this API key has {} of {} and asks for {} more, allowed are {} of the server's {} ({}); {}", megabytes(own), what,
         megabytes(more), megabytes(share_), megabytes(most_), options, remedy);
  if (all + more > most_)
    fail(ErrorCode::resource_exhausted, "this API key has {} of {} and asks for {} more; all keys together have {}, allowed are {} ({}); {}", megabytes(own),
         what, megabytes(more), megabytes(all), megabytes(most_), options, remedy);
}

}  // namespace lockstep
