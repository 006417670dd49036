// Work counters of forwards, incremented by the kernels themselves, beside the counts expected from lengths and config.
//   ForwardCounts counts = context.counters().read(); counts.expect(model, 0, 40); if (const std::string fault = counts.fault(); !fault.empty()) ...
// The two differ when attention reads keys that were not selected, or experts compute rows that were not routed to them. Plain values.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

class Model;

// Rows of a forward, each once a segment of layers (model/operations/segment.h). Counted where they are made or read.
struct SegmentRows {
  std::int64_t made = 0, read = 0;  // computed in a forward, and read from what another forward kept (model/kept_forwards.h)
  std::int64_t again = 0;           // computed in a backward from the segment's input
  std::int64_t asked = 0;           // expected: made and read together
  SegmentRows& operator+=(const SegmentRows& other);
  SegmentRows operator-(const SegmentRows& earlier) const;
  bool operator==(const SegmentRows&) const = default;
};

struct ForwardCounts {
  // Counted by kernels (AttentionForward::keys_read, LinearForward::rows_made), over rows and layers:
  std::int64_t pairs_read = 0;   // (query head, key) pairs that attention scored
  std::int64_t expert_rows = 0;  // rows that an expert's matrix was multiplied with: gate, up and down each
  // Expected: p + 1 keys are visible to the query head of a row at position p, and it reads min(k, p + 1) of them, k of the selection or window.
  std::int64_t pairs_visible = 0, pairs_selected = 0, expert_rows_chosen = 0;
  SegmentRows segment_rows;

  // Adds the expected counts of rows at positions [begin, end) of a sequence. `dense`: all keys are read, whatever the model selects.
  void expect(const Model& model, std::int64_t begin, std::int64_t end, bool dense = false);
  // Adds the expected counts of `rows` rows that are read from kept forwards, so that no kernel computes them.
  void expect_read(const Model& model, std::int64_t rows);
  std::int64_t pairs_skipped() const { return pairs_visible - pairs_read; }
  double skipped_share() const { return pairs_visible > 0 ? static_cast<double>(pairs_skipped()) / static_cast<double>(pairs_visible) : 0.0; }
  // How the counted numbers differ from the expected ones; empty: they are equal.
  std::string fault() const;

  ForwardCounts& operator+=(const ForwardCounts& other);
  ForwardCounts operator-(const ForwardCounts& earlier) const;
  bool operator==(const ForwardCounts&) const = default;
};

}  // namespace lockstep
