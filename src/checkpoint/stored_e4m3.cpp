#include "checkpoint/stored_e4m3.h"

#include <cmath>

#include "base/error.h"
#include "numerics/low_bit.h"

namespace lockstep {

namespace {
std::int64_t blocks_along(std::int64_t n, std::int64_t block) { return (n + block - 1) / block; }

// The row of scales that has a row of the tensor.
std::int64_t scale_row(const StoredForm& form, std::int64_t row) {
  const std::int64_t of_values = form.first_row + row;
  return of_values / form.matrix_rows * blocks_along(form.matrix_rows, form.block_rows()) + of_values % form.matrix_rows / form.block_rows();
}

void read_codes(const StoredE4m3& at, std::int64_t row, std::int64_t rows, std::uint8_t* codes) {
  const std::int64_t first = (at.form.first_row + row) * at.columns, count = rows * at.columns;
  at.values.file->read_bytes(*at.values.tensor, {codes, static_cast<std::size_t>(count)}, static_cast<std::uint64_t>(first));
  for (std::int64_t i = 0; i < count; ++i)
    if ((codes[i] & 0x7fu) == 0x7fu)
      fail(ErrorCode::corrupt_file, "'{}': element {} of tensor {} is nan, allowed are finite numbers", at.values.file->label(), first + i,
           quoted_name(at.values.tensor->name));
}

void check_scale(const StoredE4m3& at, std::int64_t element, float scale) {
  if (!std::isfinite(scale * kLargestE4m3))
    fail(ErrorCode::corrupt_file, "'{}': element {} of tensor {} is {}, allowed are finite numbers whose product with {} is finite", at.scales.file->label(),
         element, quoted_name(at.scales.tensor->name), scale, kLargestE4m3);
}

// The scales of one row of blocks, or of groups.
std::vector<std::uint8_t> exponents_of(const StoredE4m3& at, std::int64_t row) {
  const std::int64_t across = blocks_along(at.columns, at.form.block_columns());
  std::vector<std::uint8_t> exponents(static_cast<std::size_t>(across));
  std::vector<float> scales(exponents.size());
  if (at.form.as == StoredAs::mxfp8) {
    at.scales.file->read_bytes(*at.scales.tensor, exponents, static_cast<std::uint64_t>(row * across));
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = bits_float(static_cast<std::uint32_t>(exponents[i]) << 23);
  } else {
    at.scales.file->read(*at.scales.tensor, scales, row * across);
    for (std::size_t i = 0; i < scales.size(); ++i) exponents[i] = static_cast<std::uint8_t>(float_bits(scales[i]) >> 23);
  }
  for (std::size_t i = 0; i < scales.size(); ++i) check_scale(at, row * across + static_cast<std::int64_t>(i), scales[i]);
  return exponents;
}
}  // namespace

void read_blocks(const StoredTensor& tensor, std::int64_t row, std::int64_t rows, std::uint8_t* codes, std::vector<float>& scales) {
  const StoredE4m3 at = tensor.e4m3();
  const std::int64_t across = blocks_along(at.columns, kFp8Block), first = scale_row(at.form, row) * across;
  read_codes(at, row, rows, codes);
  scales.resize(static_cast<std::size_t>(blocks_along(rows, kFp8Block) * across));
  at.scales.file->read(*at.scales.tensor, scales, first);
  for (std::size_t i = 0; i < scales.size(); ++i) check_scale(at, first + static_cast<std::int64_t>(i), scales[i]);
}

void read_groups(const StoredTensor& tensor, std::int64_t row, std::int64_t rows, std::vector<std::uint8_t>& codes, std::vector<std::uint8_t>& exponents) {
  const StoredE4m3 at = tensor.e4m3();
  const std::int64_t groups = blocks_along(at.columns, kQuantisedGroup), together = at.form.block_columns() / kQuantisedGroup;
  codes.resize(static_cast<std::size_t>(rows * at.columns));
  read_codes(at, row, rows, codes.data());
  exponents.resize(static_cast<std::size_t>(rows * groups));
  std::vector<std::uint8_t> of_blocks;
  std::int64_t read_row = -1;
  for (std::int64_t n = 0; n < rows; ++n) {
    if (const std::int64_t of_row = scale_row(at.form, row + n); of_row != read_row) of_blocks = exponents_of(at, read_row = of_row);
    for (std::int64_t g = 0; g < groups; ++g) exponents[static_cast<std::size_t>(n * groups + g)] = of_blocks[static_cast<std::size_t>(g / together)];
  }
}

}  // namespace lockstep
