// A long sequence whose positions are dealt to n ranks (docs/ranks.md, cp): cut at multiples of kGradientBlock positions into 2n pieces, of which rank
// r has the r-th and the r-th from the end, so that each has the same work. Keys of all positions are gathered while a layer runs.
//   if (is_cut(length, 2)) ContextPieces pieces(*place.context, backend, length, pages, 16);
// Used by the thread of its rank; outlives the forward and its backward.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/rows.h"
#include "model/kv_cache.h"
#include "parallel/communicator.h"

namespace lockstep {

// Whether a sequence of this length is cut: every piece has a block of positions, or it goes whole to a rank.
bool is_cut(std::int64_t length, int ranks);

struct PositionRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};
// The 2n pieces of a sequence that is cut; and those of a rank, in order.
std::vector<PositionRange> pieces_of(std::int64_t length, int ranks);
std::array<PositionRange, 2> pieces_of_rank(std::int64_t length, int ranks, int rank);

class ContextPieces {
 public:
  // `pages`: of all positions of the sequence.
  ContextPieces(Communicator& group, Backend& backend, std::int64_t length, const std::vector<std::int32_t>& pages, std::int64_t page_size);

  Communicator& group() const { return group_; }
  int last() const { return static_cast<int>(pieces_.size()) - 1; }
  const PositionRange& piece(int number) const { return pieces_[static_cast<std::size_t>(number)]; }
  int owner(int number) const { return std::min(number, last() - number); }
  // This rank's pieces, slots 0 and 1: their numbers, and the row of the batch at which the second begins.
  int own(int slot) const { return number_of(slot, group_.rank()); }
  std::int64_t first_row(int slot) const { return slot == 0 ? 0 : piece(own(0)).size(); }
  std::int64_t rows() const { return piece(own(0)).size() + piece(own(1)).size(); }
  std::int64_t length() const { return pieces_.back().end; }

  // `all` [rows of the slot, columns]: the pieces of one slot, in the order of ranks, from each rank's rows of both; and the rows that it stands for.
  void gather(Stream& stream, int slot, const View& mine, const View& all) const;
  Rows rows_of(int slot) const;
  // The same of both slots, one behind the other: `all` [length, columns]. And the position of each row.
  void gather(Stream& stream, const View& mine, const View& all) const;
  const std::vector<std::int32_t>& positions() const { return positions_; }

  // For the kernels of a backward over one piece: Rows::first of a slot, and Rows::key_begin where the gradients begin with the first key of a range.
  View first(int slot) const { return first_.view().row_range(slot, 1); }
  View key_begin(int range) const { return key_begin_.view().row_range(range, 1); }

 private:
  int number_of(int slot, int rank) const { return slot == 0 ? rank : last() - rank; }
  std::int64_t slot_begin(int slot) const { return slot_begin_[static_cast<std::size_t>(slot)]; }

  Communicator& group_;
  std::vector<PositionRange> pieces_;
  std::vector<std::int32_t> positions_;
  std::array<std::int64_t, 3> slot_begin_{};  // of positions_, and the end
  Buffer position_, sequence_, page_table_, first_, key_begin_;
  Rows all_rows_;
};

// A cache of one sequence of which one layer's entries at a time are gathered: layers of one shape have the same memory.
KvCache one_layer_cache(Backend& backend, const std::vector<CacheShape>& shapes, const Profile& profile, std::int64_t pages, std::int64_t page_size);

}  // namespace lockstep
