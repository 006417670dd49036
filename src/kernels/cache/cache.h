// The paged cache of one layer: an entry of `width` values per position, fp32 or bf16 (rounded to nearest even once, here).
//   cache_write: columns of x go to columns cache_column.. of the entry of (sequence, position).
// Layout: [pages * page_size, width]; slot = page * page_size + position % page_size, the page from the batch's table (kernels/cache/pages.h).
// Training and serving write the same entries and attention reads nothing else: keys and values are used as stored.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct CacheWrite {
  View cache;  // f32 or bf16 [slots, width]
  std::int64_t cache_column = 0;
  View x;  // f32 [T, columns]
  Rows rows;
};

}  // namespace lockstep
