// An exchange of rows of which only the device knows how many are wanted: rows for the experts of another rank (model/dealt_rows.h). Views have room for
// all of them, so memory and plans know their sizes from lengths alone; what leaves a process takes the bytes of the rows that were chosen.
//   exchange_chosen(group, stream, to, from, to_rows, from_rows);   // as group.exchange(stream, to, from)
// Both sides know the choice, so a message has rows and nothing else. A row that was not chosen is +0 where it came from another process, and as its sender
// has it where it was copied: nobody reads it, or its sender has +0 there.
#pragma once
#include "parallel/communicator.h"

namespace lockstep {

// Row t is chosen if one of index[t, 0..] lies in [begin, end). No index: all rows are.
struct RowChoice {
  View index{};  // i32 [rows, *]
  std::int64_t begin = 0, end = 0;
};

// A transport for which fewer bytes are less work.
class ChosenRowsTransport {
 public:
  virtual ~ChosenRowsTransport() = default;
  // Choices by rank, as the views.
  virtual void exchange_chosen(Stream& stream, const std::vector<View>& to, const std::vector<View>& from, const std::vector<RowChoice>& to_rows,
                               const std::vector<RowChoice>& from_rows) = 0;
};

// Others copy all rows as they stand: packing would cost time and save nothing.
void exchange_chosen(Communicator& group, Stream& stream, const std::vector<View>& to, const std::vector<View>& from, const std::vector<RowChoice>& to_rows,
                     const std::vector<RowChoice>& from_rows);

// The rows of a choice, ascending; and a buffer's bytes, `row` for each row of all, without those that were not chosen, and back.
std::vector<std::int64_t> chosen_rows(Stream& stream, const RowChoice& choice);
std::string only_rows(const std::string& all, const std::vector<std::int64_t>& rows, std::size_t row);
// Error internal: `some` are not the bytes of so many rows.
std::string with_other_rows(const std::string& some, const std::vector<std::int64_t>& rows, std::size_t row, std::size_t bytes);

}  // namespace lockstep
