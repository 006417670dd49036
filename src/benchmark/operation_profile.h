// Measures how long each operation of a run took, against the limits of the machine, where kernels are launched (kernels/kernel_profile.h).
//   OperationProfile profile; work(); std::puts(operation_text(profile.report({.threads = 2, .gigaflops = 300, .gigabytes_per_second = 30})).c_str());
// One object at a time in a process; it lives from before the first work of a backend until after the last. Kernels of a GPU are not measured.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "benchmark/roofline.h"

namespace lockstep {

class KernelProfile;
struct KernelTotals;

struct OperationRow {
  std::string name;  // of the kernel
  std::int64_t calls = 0;
  double seconds = 0, flop = 0, bytes = 0;  // kernels/kernel_work.h
  double limit_share = -1;                  // RooflinePoint::seconds of this work over `seconds`: 1 at the limit; below 0: not known
};
struct OperationReport {
  double elapsed = 0;              // seconds from the profile's beginning, without what is left out
  std::vector<OperationRow> rows;  // that were called, the longest first
  RooflinePoint limit;
  double seconds() const;  // of all rows
};

class OperationProfile {
 public:
  OperationProfile();
  ~OperationProfile();
  OperationReport report(const RooflinePoint& limit) const;
  // Runs `work`, whose operations and seconds are in no report. No other thread may launch meanwhile.
  void leave_out(const std::function<void()>& work);

 private:
  std::unique_ptr<KernelProfile> kernels_;
  std::chrono::steady_clock::time_point began_;
  std::vector<KernelTotals> left_out_;  // in the order of KernelProfile::totals(), or empty
  double left_out_seconds_ = 0;
};

// A table for people, of several lines without a newline at the end.
std::string operation_text(const OperationReport& report);
nlohmann::ordered_json operation_json(const OperationReport& report);

}  // namespace lockstep
