#include "kernels/kernel_profile.h"

#include <array>
#include <atomic>
#include <mutex>

#include "base/error.h"
#include "observe/trace.h"

namespace lockstep {

namespace {
enum Place : std::size_t {
#define LOCKSTEP_PLACE(kernel, Arguments) at_##kernel,
  LOCKSTEP_KERNELS(LOCKSTEP_PLACE)
#undef LOCKSTEP_PLACE
      kPlaces
};
constexpr std::array<const char*, kPlaces> kNames = {
#define LOCKSTEP_NAME(kernel, Arguments) #kernel,
    LOCKSTEP_KERNELS(LOCKSTEP_NAME)
#undef LOCKSTEP_NAME
};
constexpr std::size_t kSets = 3;  // instruction sets

std::atomic<bool> profiled{false};
KernelTable unmeasured[kSets];  // the rows as they were
std::mutex totals_mutex;
std::array<KernelTotals, kPlaces> all_totals;

template <std::size_t set, std::size_t place, class Arguments, void (*KernelTable::*kernel)(const Arguments&, ThreadPool&)>
void measured(const Arguments& op, ThreadPool& pool) {
  const TraceClock::time_point begin = TraceClock::now();
  (unmeasured[set].*kernel)(op, pool);
  const TraceClock::time_point end = TraceClock::now();
  if (tracing.load(std::memory_order_relaxed)) add_trace_event("kernel", kNames[place], begin, end);
  const KernelWork work = work_of(op);
  const std::lock_guard lock(totals_mutex);
  KernelTotals& totals = all_totals[place];
  ++totals.calls;
  totals.seconds += std::chrono::duration<double>(end - begin).count();
  totals.work.flop += work.flop;
  totals.work.bytes += work.bytes;
}

template <std::size_t set>
KernelTable measuring_row() {
  return {
#define LOCKSTEP_MEASURED(kernel, Arguments) &measured<set, at_##kernel, Arguments, &KernelTable::kernel>,
      LOCKSTEP_KERNELS(LOCKSTEP_MEASURED)
#undef LOCKSTEP_MEASURED
  };
}

KernelTable& row(std::size_t set) { return kernel_table_to_plant_in(static_cast<InstructionSet>(set), false); }
}  // namespace

KernelProfile::KernelProfile() {
  if (profiled.exchange(true)) fail(ErrorCode::internal, "kernels are being measured already");
  {
    const std::lock_guard lock(totals_mutex);
    for (std::size_t place = 0; place < kPlaces; ++place) all_totals[place] = {.name = kNames[place]};
  }
  for (std::size_t set = 0; set < kSets; ++set) unmeasured[set] = row(set);
  row(0) = measuring_row<0>();
  row(1) = measuring_row<1>();
  row(2) = measuring_row<2>();
}

KernelProfile::~KernelProfile() {
  for (std::size_t set = 0; set < kSets; ++set) row(set) = unmeasured[set];
  profiled = false;
}

std::vector<KernelTotals> KernelProfile::totals() const {
  const std::lock_guard lock(totals_mutex);
  return {all_totals.begin(), all_totals.end()};
}

}  // namespace lockstep
