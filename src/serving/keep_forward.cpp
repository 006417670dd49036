#include "serving/keep_forward.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep {

std::vector<std::string> keep_forward_modes() { return {"off", "inputs", "all"}; }

void check(const KeepForwardSettings& settings) {
  const std::vector<std::string> modes = keep_forward_modes();
  if (std::find(modes.begin(), modes.end(), settings.mode) == modes.end())
    fail(ErrorCode::invalid_argument, "keep_forward is '{}', allowed are {}", settings.mode, fmt::join(modes, ", "));
}

std::shared_ptr<KeptForwards> kept_forwards_of(const KeepForwardSettings& settings, Runtime& runtime, std::int64_t page_size,
                                               std::shared_ptr<MemoryLedger> room) {
  check(settings);
  if (!settings.on()) return nullptr;
  return std::make_shared<KeptForwards>(
      runtime, settings.mode == "all" ? RowValues::operations : RowValues::segments,
      KeptForwards::Settings{
          .most_bytes = settings.megabytes << 20, .page_positions = page_size, .verify_every = settings.verify_every, .room = std::move(room)});
}

}  // namespace lockstep
