// Work counters of forwards, incremented by the kernels themselves, beside the counts expected from lengths and config.
//   ForwardCounts counts = context.counts(); counts.expect(model, 0, 40); if (const std::string fault = counts.fault(); !fault.empty()) ...
// The two differ when attention reads keys that were not selected, or experts compute rows that were not routed to them. Plain values.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

class Model;

struct ForwardCounts {
  // Counted by kernels (AttentionForward::keys_read, LinearForward::rows_made), over rows and layers:
  std::int64_t pairs_read = 0;   // (query head, key) pairs that attention scored
  std::int64_t expert_rows = 0;  // rows that an expert's matrix was multiplied with: gate, up and down each
  // Expected: p + 1 keys are visible to the query head of a row at position p, and it reads min(k, p + 1) of them, k of the selection or window.
  std::int64_t pairs_visible = 0, pairs_selected = 0, expert_rows_chosen = 0;

  // Adds the expected counts of rows at positions [begin, end) of a sequence. `dense`: all keys are read, whatever the model selects.
  void expect(const Model& model, std::int64_t begin, std::int64_t end, bool dense = false);
  std::int64_t pairs_skipped() const { return pairs_visible - pairs_read; }
  double skipped_share() const { return pairs_visible > 0 ? static_cast<double>(pairs_skipped()) / static_cast<double>(pairs_visible) : 0.0; }
  // How the counted numbers differ from the expected ones; empty: they are equal.
  std::string fault() const;

  ForwardCounts& operator+=(const ForwardCounts& other);
  ForwardCounts operator-(const ForwardCounts& earlier) const;
  bool operator==(const ForwardCounts&) const = default;
};

}  // namespace lockstep
