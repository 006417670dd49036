#include "http/shared.h"

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "base/seconds.h"
#include "http/connection.h"

namespace lockstep {

void HttpShared::bound_held_bytes() {
  std::vector<std::shared_ptr<Connection>> waiting;
  for (const auto& connection : connections)
    if (connection->answer().held_bytes() > 0) waiting.push_back(connection);
  std::sort(waiting.begin(), waiting.end(), [](const auto& a, const auto& b) { return a->answer().waits_since() < b->answer().waits_since(); });
  for (const auto& connection : waiting) {
    if (held_bytes <= static_cast<std::size_t>(options.max_held_bytes)) return;
    log_warning("answers wait for clients that do not read them; the one that waits longest is closed", {{"held_bytes", held_bytes}});
    state->streams_dropped.fetch_add(1, std::memory_order_relaxed);
    connection->abandon();
    connection->close();
  }
}

bool HttpShared::close_resting() {
  std::shared_ptr<Connection> oldest;
  for (const auto& connection : connections)
    if (const auto since = connection->rests_since(); since && (!oldest || *since < *oldest->rests_since())) oldest = connection;
  if (!oldest || seconds_since(*oldest->rests_since()) < options.rest_seconds) return false;
  oldest->close();
  return true;
}

}  // namespace lockstep
