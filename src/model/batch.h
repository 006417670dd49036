// The rows of one forward: slices of sequences, one after another. Host vectors in, device views out.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/rows.h"

namespace lockstep {

// Consecutive positions of one sequence, and the pages that hold it from position 0 on.
struct SequenceSlice {
  std::vector<std::int32_t> tokens;
  std::int64_t begin = 0;           // position of the first token
  std::vector<std::int32_t> pages;  // at least ceil((begin + tokens) / page_size)
};

class Batch {
 public:
  // `training`: every slice starts at position 0 (whole sequences); gradient segments are made.
  Batch(Backend& backend, const std::vector<SequenceSlice>& slices, std::int64_t page_size, bool training);
  const Rows& rows() const { return rows_; }
  std::int64_t count() const { return count_; }
  std::int64_t longest() const { return longest_; }          // longest sequence end (positions)
  const std::vector<std::int32_t>& tokens() const { return tokens_; }  // of the rows, on the host
  const std::vector<std::int64_t>& row_begin() const { return row_begin_; }  // first row of each slice, and the end

 private:
  Rows rows_;
  std::vector<Buffer> buffers_;
  std::int64_t count_ = 0, longest_ = 0;
  std::vector<std::int64_t> row_begin_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace lockstep
