// Implementation of value.h.
#include "kernels/row_tools.h"
#include "kernels/value/value_row.h"

namespace lockstep {

template <class V>
void value_loss(const ValueLoss& op, ThreadPool& pool) {
  constexpr std::int64_t kRows = 256;
  pool.run((op.value.rows + kRows - 1) / kRows, [&](std::int64_t block) {
    for (std::int64_t t = block * kRows; t < std::min(op.value.rows, (block + 1) * kRows); ++t) value_row<V>(op, t);
  });
}

LOCKSTEP_INSTANTIATE(value_loss, ValueLoss)

}  // namespace lockstep
