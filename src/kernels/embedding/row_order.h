// Sorts the rows of a batch by token id, for CUDA kernels that sum the rows of each id.
#pragma once
#include "kernels/cuda/prelude.h"
#include "kernels/row_tools.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

// Where row t stands among all rows by token id, rows of one id in their order: order[place] = t.
struct OrderRowsBody {
  const std::int32_t* token;
  std::int64_t rows;
  std::int32_t* order;
  LOCKSTEP_DEVICE void operator()(std::int64_t t) const {
    const std::int32_t own = token[t];
    std::int64_t before = 0;
    for (std::int64_t other = 0; other < rows; ++other) before += token[other] < own || (token[other] == own && other < t);
    order[before] = static_cast<std::int32_t>(t);
  }
};

// Returns the order, in scratch slot `slot`.
inline std::int32_t* order_rows(const View& token, std::int64_t rows, int slot, Grid& grid) {
  std::int32_t* order = grid.scratch<std::int32_t>(slot, rows);
  grid.each(rows, OrderRowsBody{device_pointer<std::int32_t>(token), rows, order});
  return order;
}

// Deposits, for one column, a chain of plain adds per segment over the rows of one id: row order[at] and those after it with the same id.
LOCKSTEP_DEVICE void deposit_rows_of_id(BinGroup<Lane>& bins, const View& dy, const std::int32_t* token, const std::int32_t* segment, const std::int32_t* order,
                                        std::int64_t at, std::int64_t column) {
  const std::int32_t id = token[order[at]];
  while (at < dy.rows && token[order[at]] == id) {
    const std::int32_t own = segment[order[at]];
    float sum = 0.0f;
    for (; at < dy.rows && token[order[at]] == id && segment[order[at]] == own; ++at) sum = sum + floats(dy)[order[at] * dy.stride + column];
    bins.deposit(Lane{sum});
  }
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
