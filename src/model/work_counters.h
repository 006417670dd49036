// Counters of what a forward's kernels really did, and which rows of its segments were computed or read. They count one rank's kernels in one
// forward; of layers that the backward recomputes only rows are counted. Used by the thread that runs the forward.
//   const ForwardCounts counts = context.counters().read();
#pragma once
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "model/forward_counts.h"
#include "model/forward_options.h"

namespace lockstep {

class WorkCounters {
 public:
  WorkCounters(Backend& backend, const ForwardOptions& options) : backend_(backend), counts_(options.counts), reads_rows_(options.row_source != nullptr) {}
  // Nothing is counted while one of these lives: by a segment that is computed again.
  class Paused {
   public:
    explicit Paused(WorkCounters& counters) : counters_(counters), counted_(std::exchange(counters.counts_, false)) {}
    ~Paused() { counters_.counts_ = counted_; }
    Paused(const Paused&) = delete;

   private:
    WorkCounters& counters_;
    const bool counted_;
  };
  // i32 cells for kernels of one shape, counted up from 0; none when nothing is counted, or rows are read. Pairs of a query head and a key:
  View keys_read(std::int64_t rows, std::int64_t heads) { return cells(keys_read_, rows, heads); }
  // Rows that an expert's matrix was multiplied with.
  View expert_rows(std::int64_t rows) { return cells(expert_rows_, rows, 1); }
  // Rows of a segment of layers.
  void rows_made(std::int64_t rows) { count(segment_rows_.made, rows); }
  void rows_read(std::int64_t rows) { count(segment_rows_.read, rows); }
  void rows_again(std::int64_t rows) { count(segment_rows_.again, rows); }
  // All of it so far; waits for the stream.
  ForwardCounts read();

 private:
  View cells(std::vector<Buffer>& of, std::int64_t rows, std::int64_t cols);
  void count(std::int64_t& of, std::int64_t rows) {
    if (counts_) of += rows;
  }

  Backend& backend_;
  bool counts_;
  const bool reads_rows_;
  std::vector<Buffer> keys_read_, expert_rows_;
  SegmentRows segment_rows_;
};

}  // namespace lockstep
