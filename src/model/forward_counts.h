// What the kernels of forwards did, counted by those kernels where they did it, beside what lengths and the model's config ask for. The two
// are equal unless attention reads keys that were not selected, or experts compute rows that were not sent to them. Plain values.
//   ForwardCounts counts = context.counts(); counts.expect(model, 0, 40); if (const std::string fault = counts.fault(); !fault.empty()) ...
#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

class Model;

struct ForwardCounts {
  // Counted (AttentionForward::keys_read, LinearForward::rows_made), over rows and layers:
  std::int64_t pairs_read = 0;   // (query head, key) pairs that attention scored
  std::int64_t expert_rows = 0;  // rows that an expert's matrix was multiplied with: gate, up and down each
  // Asked for: the query head of a row at position p sees p + 1 keys, and reads min(top_k, p + 1) of them.
  std::int64_t pairs_visible = 0, pairs_selected = 0, expert_rows_chosen = 0;

  // Adds what rows at positions [begin, end) of a sequence ask for. `dense`: whatever the model selects, all keys are read.
  void expect(const Model& model, std::int64_t begin, std::int64_t end, bool dense = false);
  std::int64_t pairs_skipped() const { return pairs_visible - pairs_read; }
  double skipped_share() const { return pairs_visible > 0 ? static_cast<double>(pairs_skipped()) / static_cast<double>(pairs_visible) : 0.0; }
  // How what was counted differs from what was asked for; empty: it does not.
  std::string fault() const;

  ForwardCounts& operator+=(const ForwardCounts& other);
  ForwardCounts operator-(const ForwardCounts& earlier) const;
  bool operator==(const ForwardCounts&) const = default;
};

}  // namespace lockstep
