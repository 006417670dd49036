// Measures every kernel that is launched while it lives, by kernel: calls, seconds, work. Kernels are also spans of a trace (observe/trace.h).
//   KernelProfile profile; work(); for (const KernelTotals& kernel : profile.totals()) print(kernel.name, kernel.seconds);
// It replaces the kernels in the table, through which every launch on a CPU goes, by functions that measure and then call them; so without a profile
// nothing costs time. One at a time in a process; no stream may have work under way when it begins or ends. The traced backend, and GPUs, whose
// kernels are in no table, are not measured. No bit changes.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/kernel_work.h"

namespace lockstep {

struct KernelTotals {
  std::string_view name;  // as in the table
  std::int64_t calls = 0;
  double seconds = 0;  // that the launching threads waited for it
  KernelWork work;
};

class KernelProfile {
 public:
  KernelProfile();
  ~KernelProfile();
  KernelProfile(const KernelProfile&) = delete;
  KernelProfile& operator=(const KernelProfile&) = delete;

  // Since the beginning, of all threads, in the table's order. Any thread.
  std::vector<KernelTotals> totals() const;
};

}  // namespace lockstep
