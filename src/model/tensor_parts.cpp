#include "model/tensor_parts.h"

#include <cstring>
#include <numeric>

#include "model/piece_elements.h"
#include "numerics/isa/panel_rows.h"
#include "tensor/readable_bytes.h"

namespace lockstep {
namespace {
constexpr std::int64_t kPanel = 16;  // rows that stand side by side

template <class To, class From>
void copy_elements(const FileTensor& file, const Piece& piece, const Parameter& parameter, std::int64_t row, std::int64_t rows, const void* from, DType own,
                   DType type, void* to) {
  const auto* source = static_cast<const From*>(from);
  auto* target = static_cast<To*>(to);
  each_piece_element(file, piece, parameter, row, rows, [=](std::int64_t at, std::int64_t offset) {
    if constexpr (sizeof(To) == sizeof(From)) target[at] = source[offset];
    else target[at] = static_cast<To>(converted_bits(own, type, source[offset]));
  });
}

// Whether rows of the piece are rows of the parameter.
bool is_plain(const FileTensor& file, const Piece& piece, const Parameter& parameter) {
  return !piece.transposed && piece.column_begin == 0 && piece.column_step == 1 && file.columns() == parameter.inputs;
}
}  // namespace

TensorParts::TensorParts(const Manifest& manifest, const FileTensor& file, DType type, std::int64_t most)
    : manifest_(manifest), file_(file), type_(type), width_(type == DType::bf16 ? 2 : 4), rows_(file.rows()), columns_(file.columns()) {
  // Whole panels with a multiple of 256 elements.
  const std::int64_t unit = kPanel * (kPanel / std::gcd(kPanel, columns_));
  part_rows_ = std::max<std::int64_t>(1, most / (unit * columns_)) * unit;
}

std::int64_t TensorParts::elements(std::size_t part) const {
  return (std::min(rows_, (static_cast<std::int64_t>(part) + 1) * part_rows_) - static_cast<std::int64_t>(part) * part_rows_) * columns_;
}

void TensorParts::read(Device& device, const std::vector<Buffer>& buffers, std::size_t part, void* to, std::vector<char>& scratch) const {
  const std::int64_t row = static_cast<std::int64_t>(part) * part_rows_, rows = std::min(part_rows_, rows_ - row);
  for (const Piece& piece : file_.pieces)
    if (piece.row_begin < row + rows && piece.row_begin + piece.rows > row)
      read_piece(device, buffers[static_cast<std::size_t>(piece.parameter)], piece, row, rows, to, scratch);
}

void TensorParts::read_piece(Device& device, const Buffer& buffer, const Piece& piece, std::int64_t row, std::int64_t rows, void* to,
                             std::vector<char>& scratch) const {
  const Parameter& p = manifest_.parameter(piece.parameter);
  const View whole = buffer.view().reshape(1, buffer.view().size());
  const DType own = whole.dtype;
  const std::int64_t begin = std::max(row, piece.row_begin), end = std::min(row + rows, piece.row_begin + piece.rows);
  const std::int64_t first = begin - piece.row_begin;  // row of the parameter
  char* const target = static_cast<char*>(to) + (begin - row) * columns_ * width_;
  const bool panels = p.layout == ParameterLayout::packed;
  if (own == type_ && whole.element_bytes == width_ && is_plain(file_, piece, p) && (!panels || first % kPanel == 0)) {
    const std::int64_t count = panels ? (end - begin + kPanel - 1) / kPanel * kPanel : end - begin;
    const char* from = readable_bytes(device, whole.column_range(p.offset(piece.item, first, 0), count * columns_), scratch);
    if (!panels) {
      std::memcpy(target, from, static_cast<std::size_t>(count * columns_ * width_));
      return;
    }
    const std::int64_t full = (end - begin) / kPanel * kPanel;
    for (std::int64_t n = 0; n < full; n += kPanel) panel_rows(from + n * columns_ * width_, width_, columns_, target + n * columns_ * width_, columns_);
    for (std::int64_t n = full; n < end - begin; ++n)
      for (std::int64_t c = 0; c < columns_; ++c)
        std::memcpy(target + (n * columns_ + c) * width_, from + (full * columns_ + c * kPanel + n - full) * width_, static_cast<std::size_t>(width_));
    return;
  }
  const char* from = readable_bytes(device, whole, scratch);
  const auto copy = [&]<class To>(To) {
    if (own == DType::bf16) copy_elements<To, std::uint16_t>(file_, piece, p, row, rows, from, own, type_, to);
    else copy_elements<To, std::uint32_t>(file_, piece, p, row, rows, from, own, type_, to);
  };
  if (type_ == DType::bf16) copy(std::uint16_t{});
  else copy(std::uint32_t{});
}

}  // namespace lockstep
