// Where the pages of a sequence stand in a batch's table (Rows::page_table), on every backend.
//   const std::int32_t page = pages_of(rows, sequence)[position / rows.page_size];
#pragma once
#include "kernels/elements.h"
#include "kernels/rows.h"

namespace lockstep {

LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline const std::int32_t* pages_of(const Rows& rows, std::int64_t sequence) {
  const std::int32_t* table = ints(rows.page_table);
  return table + table[sequence];
}

}  // namespace lockstep
