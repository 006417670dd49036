#include "serving/keep_forward.h"

#include "base/choice.h"

namespace lockstep {

std::vector<std::string> keep_forward_modes() { return {"off", "inputs", "all"}; }

void check(const KeepForwardSettings& settings) { check_choice("keep_forward", settings.mode, keep_forward_modes()); }

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
