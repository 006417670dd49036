#include "checkpoint/reading_memory.h"

#include <algorithm>

#include "model/compute_copy.h"

namespace lockstep {
namespace {
constexpr std::int64_t kPartSize = std::int64_t{1} << 18;  // values of a part, unless fewer than kPartRows rows have as many
constexpr std::int64_t kFloat = sizeof(float);

// Of quantised numbers and their scales; 8 bits are the most.
std::int64_t coded_bytes(std::int64_t values) { return values + values / 4; }

std::int64_t part_bytes(const FileTensor& file, const Piece& piece) {
  const std::int64_t columns = file.columns(), own = own_columns(piece, columns), rows = std::min(rows_at_once(columns), piece.rows);
  const std::int64_t read = rows * (own + (own < columns ? columns : 0)) * kFloat;  // of all columns, where the piece's are picked
  if (piece.transposed) {
    const std::int64_t matrix = (own + 15) / 16 * 16 * piece.rows;
    return matrix * kFloat + std::max(read, coded_bytes(matrix));
  }
  const std::int64_t panels = (rows + 15) / 16 * 16 * own;
  return read + panels * kFloat + coded_bytes(panels);
}
}  // namespace

std::int64_t rows_at_once(std::int64_t columns) { return std::max(kPartRows, kPartSize / std::max<std::int64_t>(columns, 1) / kPartRows * kPartRows); }

std::int64_t own_columns(const Piece& piece, std::int64_t columns) { return (columns - piece.column_begin + piece.column_step - 1) / piece.column_step; }

std::int64_t masters_reading_bytes(const Manifest& manifest) {
  std::int64_t most = 0;
  for (const FileTensor& file : manifest.files()) {
    std::int64_t rows = rows_at_once(file.columns());
    for (const Piece& piece : file.pieces)
      if (piece.transposed) rows = std::max(rows, piece.rows);  // a file of MXFP4 has them together
    const std::int64_t values = std::min(rows, file.rows()) * file.columns();
    most = std::max(most, values * kFloat + coded_bytes(values));
  }
  return most;
}

std::int64_t reading_bytes(const Manifest& manifest, std::int64_t threads) {
  std::int64_t most = 0;
  for (const FileTensor& file : manifest.files())
    for (const Piece& piece : file.pieces) most = std::max(most, part_bytes(file, piece));
  return most * std::clamp<std::int64_t>(threads, 1, kMostReaders);
}

}  // namespace lockstep
