#include "benchmark/operation_profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/seconds.h"
#include "kernels/kernel_profile.h"

namespace lockstep {

double OperationReport::seconds() const {
  double sum = 0;
  for (const OperationRow& row : rows) sum += row.seconds;
  return sum;
}

namespace {
void take_away(KernelTotals& from, const KernelTotals& what) {
  from.calls -= what.calls;
  from.seconds -= what.seconds;
  from.work.flop -= what.work.flop;
  from.work.bytes -= what.work.bytes;
}
}  // namespace

OperationProfile::OperationProfile() : kernels_(std::make_unique<KernelProfile>()), began_(std::chrono::steady_clock::now()) {}
OperationProfile::~OperationProfile() = default;

OperationReport OperationProfile::report(const RooflinePoint& limit) const {
  OperationReport report{.elapsed = seconds_since(began_) - left_out_seconds_, .rows = {}, .limit = limit};
  std::vector<KernelTotals> totals = kernels_->totals();
  for (std::size_t i = 0; i < left_out_.size(); ++i) take_away(totals[i], left_out_[i]);
  for (const KernelTotals& kernel : totals) {
    if (kernel.calls == 0) continue;
    OperationRow row{std::string(kernel.name), kernel.calls, kernel.seconds, kernel.work.flop, kernel.work.bytes};
    const double least = limit.seconds(row.flop, row.bytes);
    if (least > 0 && row.seconds > 0) row.limit_share = least / row.seconds;
    report.rows.push_back(std::move(row));
  }
  std::stable_sort(report.rows.begin(), report.rows.end(), [](const OperationRow& a, const OperationRow& b) { return a.seconds > b.seconds; });
  return report;
}

void OperationProfile::leave_out(const std::function<void()>& work) {
  const auto began = std::chrono::steady_clock::now();
  const std::vector<KernelTotals> before = kernels_->totals();
  work();
  std::vector<KernelTotals> totals = kernels_->totals();
  for (std::size_t i = 0; i < totals.size(); ++i) {
    KernelTotals earlier = before[i];  // what came before this work, without what was left out of it already
    if (!left_out_.empty()) take_away(earlier, left_out_[i]);
    take_away(totals[i], earlier);
  }
  left_out_ = std::move(totals);
  left_out_seconds_ += seconds_since(began);
}

std::string operation_text(const OperationReport& report) {
  const RooflinePoint& limit = report.limit;
  const double seconds = report.seconds(), elapsed = std::max(report.elapsed, 1e-9);
  std::string text = fmt::format("operations: {:.3f} of {:.3f} seconds; limit: {:.1f} GFLOP/s and {:.1f} GB/s with {} thread{}\n", seconds, report.elapsed,
                                 limit.gigaflops, limit.gigabytes_per_second, limit.threads, limit.threads == 1 ? "" : "s");
  text += fmt::format("{:<24}{:>10}{:>11}{:>8}{:>12}{:>11}{:>10}{:>9}{:>10}", "operation", "calls", "seconds", "of all", "GFLOP", "GB", "GFLOP/s", "GB/s",
                      "of limit");
  for (const OperationRow& row : report.rows) {
    const double rate = row.seconds > 0 ? 1 / row.seconds / 1e9 : 0;
    const std::string share = row.limit_share < 0 ? "-" : fmt::format("{:.0f}%", 100 * row.limit_share);
    text += fmt::format("\n{:<24}{:>10}{:>11.4f}{:>7.1f}%{:>12.3f}{:>11.3f}{:>10.1f}{:>9.1f}{:>10}", row.name, row.calls, row.seconds,
                        100 * row.seconds / elapsed, row.flop / 1e9, row.bytes / 1e9, row.flop * rate, row.bytes * rate, share);
  }
  return text;
}

nlohmann::ordered_json operation_json(const OperationReport& report) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const OperationRow& row : report.rows) {
    nlohmann::ordered_json entry{{"operation", row.name}, {"calls", row.calls}, {"seconds", row.seconds}, {"flop", row.flop}, {"bytes", row.bytes}};
    entry["limit_share"] = row.limit_share < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(row.limit_share);
    rows.push_back(std::move(entry));
  }
  return {{"elapsed", report.elapsed},
          {"seconds", report.seconds()},
          {"limit", {{"threads", report.limit.threads}, {"gigaflops", report.limit.gigaflops}, {"gigabytes_per_second", report.limit.gigabytes_per_second}}},
          {"operations", rows}};
}

}  // namespace lockstep
