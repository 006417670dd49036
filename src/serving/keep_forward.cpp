#include "serving/keep_forward.h"

#include <utility>

#include "base/choice.h"
#include "base/log.h"
#include "model/kept_ranks.h"
#include "model/runtime.h"
#include "parallel/processes.h"

namespace lockstep {

namespace {
RowValues values_of(const KeepForwardSettings& settings) { return settings.mode == "all" ? RowValues::operations : RowValues::segments; }
}  // namespace

std::vector<std::string> keep_forward_modes() { return {"off", "inputs", "all"}; }

void check(const KeepForwardSettings& settings) { check_choice("keep_forward", settings.mode, keep_forward_modes()); }

std::shared_ptr<KeptForwards> kept_forwards_of(const KeepForwardSettings& settings, Runtime& runtime, std::int64_t page_size,
                                               std::shared_ptr<MemoryLedger> room) {
  check(settings);
  if (!settings.on()) return nullptr;
  return std::make_shared<KeptForwards>(
      runtime, values_of(settings),
      KeptForwards::Settings{
          .most_bytes = settings.megabytes << 20, .page_positions = page_size, .verify_every = settings.verify_every, .room = std::move(room)});
}

bool keeps_over(const RankLayout& ranks, const KeepForwardSettings& settings, BackendKind kind) {
  check(settings);
  return settings.on() && keeps_over_ranks(ranks, values_of(settings), kind);
}

std::shared_ptr<KeptForwards> kept_forwards_over(const RankLayout& ranks, const KeepForwardSettings& settings, Runtime& runtime, std::int64_t page_size,
                                                 std::shared_ptr<MemoryLedger> room) {
  const bool processes = ranks.size() > 1 && joined_mail();
  if (keeps_over(ranks, settings, runtime.backend.device().kind()) && !processes) return kept_forwards_of(settings, runtime, page_size, std::move(room));
  if (settings.on())
    log_warning(
        "over these ranks no forward is kept (--keep-forward), and training computes all of them: inputs are kept over tp, ep, dp and cp, all over dp "
        "and cp, of threads on the CPU",
        {{"ranks", ranks.text()}, {"keep_forward", settings.mode}});
  return nullptr;
}

}  // namespace lockstep
