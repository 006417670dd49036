#include "checkpoint/stored_e4m3.h"

#include <cmath>

#include "base/error.h"
#include "model/stored_names.h"
#include "numerics/low_bit.h"

namespace lockstep {

namespace {
bool lies_as_it_is(const Piece& piece) { return !piece.transposed && piece.column_step == 1; }

std::int64_t blocks_along(std::int64_t n, std::int64_t block) { return (n + block - 1) / block; }

// The row of scales that has a row of the tensor.
std::int64_t scale_row(const StoredE4m3& at, std::int64_t row) {
  const std::int64_t of_values = at.first_row + row;
  return of_values / at.rows * blocks_along(at.rows, at.block_rows) + of_values % at.rows / at.block_rows;
}

void read_codes(const StoredE4m3& at, std::int64_t row, std::int64_t rows, std::uint8_t* codes) {
  const std::int64_t first = (at.first_row + row) * at.columns, count = rows * at.columns;
  at.values.file->read_bytes(*at.values.tensor, {codes, static_cast<std::size_t>(count)}, static_cast<std::uint64_t>(first));
  for (std::int64_t i = 0; i < count; ++i)
    if ((codes[i] & 0x7fu) == 0x7fu)
      fail(ErrorCode::corrupt_file, "'{}': element {} of tensor {} is nan, allowed are finite numbers", at.values.file->label(), first + i,
           quoted_name(at.values.tensor->name));
}
}  // namespace

bool holds_blocks(const StoredTensor& tensor, const Piece& piece) {
  const StoredE4m3 at = tensor.e4m3();
  return tensor.as() == StoredAs::fp8 && lies_as_it_is(piece) && (at.first_row + piece.row_begin) % at.rows % kFp8Block == 0;
}

void read_blocks(const StoredTensor& tensor, std::int64_t row, std::int64_t rows, std::uint8_t* codes, std::vector<float>& scales) {
  const StoredE4m3 at = tensor.e4m3();
  const std::int64_t across = blocks_along(at.columns, kFp8Block), first = scale_row(at, row) * across;
  read_codes(at, row, rows, codes);
  scales.resize(static_cast<std::size_t>(blocks_along(rows, kFp8Block) * across));
  at.scales.file->read(*at.scales.tensor, scales, first);
  for (std::size_t i = 0; i < scales.size(); ++i)
    if (!std::isfinite(scales[i] * kLargestE4m3))
      fail(ErrorCode::corrupt_file, "'{}': element {} of tensor {} is {}, allowed are finite numbers whose product with {} is finite", at.scales.file->label(),
           first + static_cast<std::int64_t>(i), quoted_name(at.scales.tensor->name), scales[i], kLargestE4m3);
}

bool holds_groups(const StoredTensor& tensor, const Piece& piece) {
  return tensor.as() == StoredAs::mxfp8 && lies_as_it_is(piece) && tensor.e4m3().scales_fit;  // so each of them is finite
}

void read_groups(const StoredTensor& tensor, std::vector<std::uint8_t>& codes, std::vector<std::uint8_t>& exponents) {
  const StoredE4m3 at = tensor.e4m3();
  const std::int64_t rows = tensor.file().rows(), across = blocks_along(at.columns, at.block_columns);
  codes.resize(static_cast<std::size_t>(rows * at.columns));
  read_codes(at, 0, rows, codes.data());
  exponents.resize(static_cast<std::size_t>(rows * across));
  at.scales.file->read_bytes(*at.scales.tensor, exponents, static_cast<std::uint64_t>(scale_row(at, 0) * across));
}

}  // namespace lockstep
