// Which outputs a step must compute. For example: of slice 0 the next token after row 4, of slice 1 the log-probabilities of rows 0 to 7. For each slice of
// a plan and each column (a kind of output) it lists rows of the slice, and how many numbers each row has there.
// The results (step_result.h) are found by the same slice and column. want_as_asked() fills it with what the requests ask for.
// One object serves all steps, so that a step allocates nothing per row. Used by one thread.
//   wants.begin(plan); wants.want(Column::sampled, 0); wants.end_slice(); ... wants.of(0, Column::sampled).rows
#pragma once
#include <array>
#include <span>
#include <vector>

#include "engine/scheduler.h"

namespace lockstep {

enum class Column {
  sampled,      // the token after the row, drawn as the request says
  sampled_top,  // the likeliest tokens there: of rows that are sampled
  scored,       // log-probabilities of the row's known next token, then of Request::prompt_targets
  scored_top,   // the likeliest tokens where there are neither penalties nor masks
  drawn,        // tokens at the temperature alone (Request::prompt_draws)
  experts,      // where the row went
  kept,         // the tokens that the token after the row was drawn from: of rows that are sampled
  hidden,       // its state behind the final norm
};
inline constexpr std::size_t kColumns = 8;

class StepWants {
 public:
  // Of a slice and a column.
  struct Rows {
    std::span<const std::int32_t> rows;  // of the slice, from its first on; ascending
    std::int64_t first = 0;              // what comes before: rows of this column, of all slices before
    std::int64_t first_cell = 0;         // and cells
    std::int64_t width = 0;              // cells a row
    std::size_t size() const { return rows.size(); }
    bool empty() const { return rows.empty(); }
  };

  void begin(const std::vector<PlannedSlice>& plan);
  // Of the slice that comes next; rows of a column ascend, and have one width in a slice. Of top tokens width is the most that are told.
  void want(Column column, std::int64_t row, std::int64_t width = 1);
  void end_slice();

  Rows of(std::size_t slice, Column column) const;
  std::int64_t row_begin(std::size_t slice) const { return row_begin_[slice]; }  // of the slice's first row in the forward
  std::int64_t rows(Column column) const { return static_cast<std::int64_t>(table(column).rows.size()); }
  std::int64_t cells(Column column) const { return table(column).ends.empty() ? 0 : table(column).ends.back().cells; }
  std::int64_t widest(Column column) const { return table(column).widest; }

 private:
  struct End {
    std::int64_t rows = 0, cells = 0, width = 0;
  };
  struct Table {
    std::vector<std::int32_t> rows;
    std::vector<End> ends;  // after each slice
    std::int64_t cells = 0, width = 0, widest = 0;
  };
  Table& table(Column column) { return tables_[static_cast<std::size_t>(column)]; }
  const Table& table(Column column) const { return tables_[static_cast<std::size_t>(column)]; }

  std::array<Table, kColumns> tables_;
  std::vector<std::int64_t> row_begin_;
};

// Log-probabilities of a scored row: the prompt's own token, then the row's targets.
inline std::int64_t scored_columns(const Sequence& s) { return 1 + s.prompt_targets_per_row; }
// Numbers of a row of Column::kept (Sample::kept).
inline std::int64_t kept_columns(std::int64_t vocabulary) { return 2 + KeptTokens::bitmap_words(vocabulary); }
inline bool tells_top(const Sequence& s) { return s.sampling.top_logprobs > 0; }
// What the plan's requests ask for: the next token of the last row, and of those of guessed tokens behind it; of prompt rows, where they are
// scored, the next token's log-probability and what goes with it; hidden states that are pooled. `experts`: numbers a row (ExpertShape::row()).
void want_as_asked(const std::vector<PlannedSlice>& plan, std::int64_t experts, std::int64_t vocabulary, StepWants& wants);

}  // namespace lockstep
