// The settings of kept forwards of an engine (--keep-forward): which values are stored for a trainer on the same runtime, and how much memory they
// may take (model/kept_forwards.h, docs/kept-forwards.md). Changes no bit. Plain values.
//   EngineOptions{.kept_forwards = kept_forwards_of(settings, *opened.runtime, engine.page_size)};
// The trainer may have ranks, beside an engine of one rank or of the same layout:
//   EngineOptions{.kept_forwards = kept_forwards_over(opened.ranks, settings, *opened.runtime, engine.page_size)};
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/kept_forwards.h"
#include "parallel/layout.h"

namespace lockstep {

struct KeepForwardSettings {
  std::string mode = "off";  // keep_forward_modes()
  std::int64_t megabytes = 1024;
  std::int64_t verify_every = 0;  // one in that many kept rows is computed again and compared; 0: none
  bool on() const { return mode != "off"; }
};
std::vector<std::string> keep_forward_modes();
// Error invalid_argument for an unknown mode.
void check(const KeepForwardSettings& settings);
// Null: nothing is kept. `room`: a ledger that bounds it beside its own limit, or null.
std::shared_ptr<KeptForwards> kept_forwards_of(const KeepForwardSettings& settings, Runtime& runtime, std::int64_t page_size,
                                               std::shared_ptr<MemoryLedger> room = nullptr);
// Whether something is kept for a trainer of this layout, whose ranks are threads (model/kept_ranks.h). Error as above.
bool keeps_over(const RankLayout& ranks, const KeepForwardSettings& settings, BackendKind kind = BackendKind::cpu);
// kept_forwards_of, or null with a warning over ranks for which nothing is kept, processes among them.
std::shared_ptr<KeptForwards> kept_forwards_over(const RankLayout& ranks, const KeepForwardSettings& settings, Runtime& runtime, std::int64_t page_size,
                                                 std::shared_ptr<MemoryLedger> room = nullptr);

}  // namespace lockstep
