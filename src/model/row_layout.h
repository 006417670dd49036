// How the values of a forward's rows (model/row_values.h) stand in one page of memory, f32: the first value of all positions, then the second. Plain.
//   const RowLayout layout(row_widths(runtime, RowValues::segments), 16); const View hidden = layout.of_value(page, 0);  // [16, width]
#pragma once
#include <cstdint>
#include <vector>

#include "model/row_values.h"
#include "tensor/view.h"

namespace lockstep {

struct Runtime;

// Columns of each value of a row, found by running the model on the backend that only counts.
std::vector<std::int64_t> row_widths(const Runtime& runtime, RowValues values);

class RowLayout {
 public:
  RowLayout(std::vector<std::int64_t> widths, std::int64_t positions);
  std::int64_t values() const { return static_cast<std::int64_t>(widths_.size()); }
  std::int64_t width(std::int64_t value) const { return widths_[static_cast<std::size_t>(value)]; }
  std::int64_t positions() const { return positions_; }
  std::int64_t row_bytes() const { return columns_ * std::int64_t{sizeof(float)}; }
  std::int64_t page_bytes() const { return row_bytes() * positions_; }
  // A value of the page's rows: [positions, width].
  View of_value(const View& page, std::int64_t value) const;

 private:
  std::vector<std::int64_t> widths_, begins_;  // columns of each value, and before it
  std::int64_t positions_, columns_ = 0;
};

}  // namespace lockstep
