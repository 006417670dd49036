// The rows of one forward: slices of sequences, one after another, built on the host and uploaded.
//   std::vector<SequenceSlice> slices(1); slices[0].tokens = {1, 5, 7}; slices[0].pages = {0}; const Batch batch(backend, slices, 16, false);
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/rows.h"

namespace lockstep {

// Consecutive positions of one sequence, and its cache pages from position 0 on.
struct SequenceSlice {
  std::vector<std::int32_t> tokens;
  std::int64_t begin = 0;           // position of the first token
  std::vector<std::int32_t> pages;  // at least ceil((begin + tokens) / page_size)
  // Training: the first `shared` positions are those of slice `owner` (same tokens, same pages). With begin 0 the slice is a whole sequence whose
  // shared rows are computed once, by the owner, in the forward, and separately for each sequence in the backward: no bit changes. With begin ==
  // shared the slice continues the owner, whose rows are one sequence in the backward too (docs/numerics.md, "Declared shared prefixes").
  std::int64_t shared = 0;
  std::size_t owner = 0;
  // Router replay: experts given to its tokens (model/expert_shape.h), each a row of the model's shape, kOwnExperts where none are given;
  // empty: the model routes all tokens. Shared positions have the owner's.
  std::vector<std::int32_t> experts = {};
  bool piece = false;  // training: `begin` on, of a sequence that other ranks have the rest of (model/context_pieces.h)
};

class Batch {
 public:
  // `training`: every slice starts at position 0 (whole sequences), continues one that does, or is a piece; gradient segments are made.
  Batch(Backend& backend, const std::vector<SequenceSlice>& slices, std::int64_t page_size, bool training);
  // Rows [begin, begin + count) of a training batch whose forward's rows are the tape's, for what works on each row by itself: it has no sequences.
  Batch(const Batch& whole, std::int64_t begin, std::int64_t count);
  const Rows& rows() const { return rows_; }
  std::int64_t count() const { return count_; }
  // The rows of the backward: those of all sequences, each with its own copy of rows shared in the forward. Without sharing, the forward's rows.
  const Rows& tape_rows() const { return tape_rows_; }
  std::int64_t tape_count() const { return tape_count_; }
  // i32 [tape_count, 1]: the forward's row of each of them. None: they are the same.
  const View& source() const { return source_; }
  // Where sequences continue others: the number of gradient rows of cache entries (Rows::key_begin), and which of them are summed for each row.
  struct KeySums {
    std::int64_t keys = 0;  // 0: each row is its own key
    View begin, row;        // i32 [count + 1, 1], [keys, 1]
  };
  const KeySums& key_sums() const { return key_sums_; }
  // i32 [count, ExpertShape::row()]: experts that are given to the rows. None: to no row.
  const View& experts() const { return experts_; }
  std::int64_t longest() const { return longest_; }                          // longest sequence end (positions)
  const std::vector<std::int32_t>& tokens() const { return tokens_; }        // of the rows, on the host
  const std::vector<std::int64_t>& row_begin() const { return row_begin_; }  // first tape row of each slice, and the end
  // Bounds of tiles of at most `most` rows, or of one segment of gradients that has more: whole segments, of a training batch.
  std::vector<std::int64_t> tiles(std::int64_t most) const;
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
  std::vector<std::int64_t> row_begin_, forward_begin_, segment_begin_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace lockstep
