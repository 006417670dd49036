// Which elements of a whole parameter some rows of a rank's share are. A share (model/sharding.h) has a shape and a layout of its own, and its rows are
// panels of 16 outputs or rows of a table: for example the panels 2 to 5 of a matrix that begins at output 64 of the whole one. So what one layout of ranks
// has written is found again by another, whose shares begin elsewhere. Plain values and pure functions.
//   RowsPlace place{.parameter = 3, .count = 1, .outputs = 40, .inputs = 8, .rows = 3}; place.size() == 3 * 16 * 8;
#pragma once
#include <cstdint>
#include <span>

#include "model/parameter.h"

namespace lockstep {

struct RowsPlace {
  ParameterId parameter = 0;
  bool packed = true;                               // in panels; else a table
  ElementPlace corner = {};                         // the element of the whole parameter that is the share's first
  std::int64_t count = 0, outputs = 0, inputs = 0;  // of the share
  std::int64_t first = 0, rows = 0;                 // of the share's rows these: [first, first + rows)

  std::int64_t height() const { return packed ? 16 : 1; }  // outputs of a row
  std::int64_t width() const { return height() * inputs; }
  std::int64_t rows_of_item() const { return packed ? (outputs + 15) / 16 : outputs; }
  std::int64_t all_rows() const { return count * rows_of_item(); }
  std::int64_t size() const { return rows * width(); }              // of these rows, padding included
  std::int64_t share_size() const { return all_rows() * width(); }  // of the share's image
};

// All rows of a parameter, as one rank has it.
RowsPlace all_rows_of(const Parameter& parameter, ParameterId id);
// Elements of these rows, without padding.
std::int64_t elements_of(const RowsPlace& place);
// How many of them are among the `size` values from value `begin` of the rows `from` on. Both at multiples of from.height().
std::int64_t elements_in_both(const RowsPlace& from, std::int64_t begin, std::int64_t size, const RowsPlace& to);
// Copies those to their places in the image of `to`'s share, of share_size() values; nothing else in it changes. Returns how many.
std::int64_t copy_elements(const RowsPlace& from, std::int64_t begin, std::span<const float> values, const RowsPlace& to, std::span<float> image);

}  // namespace lockstep
