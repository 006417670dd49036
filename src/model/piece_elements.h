// Iterates over the elements that a file tensor and a parameter have in common. Used where values pass between the two, in either direction.
//   each_piece_element(file, piece, parameter, 0, file.rows(), [&](std::int64_t at, std::int64_t offset) { image[offset] = values[at]; });
#pragma once
#include <algorithm>

#include "model/file_tensor.h"
#include "numerics/element.h"
#include "tensor/dtype.h"

namespace lockstep {

// The bits of a number, f32 or bf16, in the other type, as uploads convert it.
inline std::uint32_t converted_bits(DType from, DType to, std::uint32_t bits) {
  if (from == to) return bits;
  return to == DType::f32 ? bits << 16 : round_to_bf16(bits_float(bits)).bits;
}

// Whether rows of the piece are rows of a packed parameter, so that 16 of them from a multiple of 16 on are a panel.
inline bool has_whole_panels(const FileTensor& file, const Piece& piece, const Parameter& parameter) {
  return parameter.layout == ParameterLayout::packed && !piece.transposed && piece.column_begin == 0 && piece.column_step == 1 &&
         file.columns() == parameter.inputs;
}

// Calls f(index in those rows, offset in the parameter's memory) for every element of a piece in rows [row, row + rows) of the file tensor.
template <class F>
void each_piece_element(const FileTensor& file, const Piece& piece, const Parameter& parameter, std::int64_t row, std::int64_t rows, const F& f) {
  constexpr std::int64_t kPanel = 16;  // outputs of a packed parameter that stand side by side
  const std::int64_t columns = file.columns(), end = std::min(piece.rows, row + rows - piece.row_begin);
  std::int64_t r = std::max<std::int64_t>(0, row - piece.row_begin);
  const bool panels = parameter.layout == ParameterLayout::packed && !piece.transposed && piece.column_begin == 0 && piece.column_step == 1;
  const auto one_row = [&] {
    for (std::int64_t at = piece.column_begin, c = 0; at < columns; at += piece.column_step, ++c)
      f((piece.row_begin + r - row) * columns + at, piece.transposed ? parameter.offset(piece.item, c, r) : parameter.offset(piece.item, r, c));
  };
  while (r < end) {
    if (!panels || r % kPanel != 0 || end - r < kPanel) {
      one_row();
      ++r;
      continue;
    }
    // A whole panel in the order of its memory: its rows one after another would pass over the same lines of the cache sixteen times.
    const std::int64_t first = (piece.row_begin + r - row) * columns, panel = parameter.offset(piece.item, r, 0);
    for (std::int64_t c = 0; c < columns; ++c)
      for (std::int64_t n = 0; n < kPanel; ++n) f(first + n * columns + c, panel + c * kPanel + n);
    r += kPanel;
  }
}

}  // namespace lockstep
