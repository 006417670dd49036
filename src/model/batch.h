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
  // Training: the first `shared` positions are those of slice `owner` (same tokens, same pages). With begin 0 the slice is whole, its
  // shared rows are computed by the owner alone and only the backward has them for each sequence: no bit changes. With begin == shared
  // the slice continues the owner, whose rows are one sequence in the backward too (docs/numerics.md, "Declared shared prefixes").
  std::int64_t shared = 0;
  std::size_t owner = 0;
  // Experts that are given to its tokens (model/expert_shape.h), each a row of the model's shape, kOwnExperts where there are none;
  // empty: of no token. Shared positions have the owner's.
  std::vector<std::int32_t> experts = {};
};

class Batch {
 public:
  // `training`: every slice starts at position 0 (whole sequences) or continues one that does; gradient segments are made.
  Batch(Backend& backend, const std::vector<SequenceSlice>& slices, std::int64_t page_size, bool training);
  const Rows& rows() const { return rows_; }
  std::int64_t count() const { return count_; }
  // What the backward sees: the rows of all sequences, those that share some in the forward included. Else the same rows.
  const Rows& tape_rows() const { return tape_rows_; }
  std::int64_t tape_count() const { return tape_count_; }
  // i32 [tape_count, 1]: the forward's row of each of them. None: they are the same.
  const View& source() const { return source_; }
  // Where sequences continue others: rows of gradients of entries (Rows::key_begin), and which of them each row is the sum of.
  struct KeySums {
    std::int64_t keys = 0;  // 0: each row is its own key
    View begin, row;        // i32 [count + 1, 1], [keys, 1]
  };
  const KeySums& key_sums() const { return key_sums_; }
  // i32 [count, ExpertShape::row()]: experts that are given to the rows. None: to no row.
  const View& experts() const { return experts_; }
  std::int64_t longest() const { return longest_; }          // longest sequence end (positions)
  const std::vector<std::int32_t>& tokens() const { return tokens_; }  // of the rows, on the host
  const std::vector<std::int64_t>& row_begin() const { return row_begin_; }  // first tape row of each slice, and the end
  const std::vector<std::int64_t>& forward_begin() const { return source_ ? forward_begin_ : row_begin_; }  // the same of the forward

 private:
  View upload(Backend& backend, const std::vector<std::int32_t>& values, std::int64_t cols = 1);
  void share_rows(Backend& backend, const std::vector<SequenceSlice>& slices);
  void sum_keys(Backend& backend, const std::vector<SequenceSlice>& slices);
  void upload_experts(Backend& backend, const std::vector<SequenceSlice>& slices);

  Rows rows_, tape_rows_;
  View source_, experts_;
  KeySums key_sums_;
  std::vector<Buffer> buffers_;
  std::int64_t count_ = 0, tape_count_ = 0, longest_ = 0;
  std::vector<std::int64_t> row_begin_, forward_begin_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace lockstep
