// Implementation of cache.h.
#include "kernels/cache/pages.h"

namespace lockstep {

template <class V>
void cache_write(const CacheWrite& op, ThreadPool& pool) {
  constexpr std::int64_t kRowBlock = 32;
  const std::int64_t rows = op.x.rows, columns = op.x.cols;
  const Rows& r = op.rows;
  pool.run((rows + kRowBlock - 1) / kRowBlock, [&](std::int64_t block) {
    for (std::int64_t t = block * kRowBlock; t < std::min(rows, (block + 1) * kRowBlock); ++t) {
      const std::int32_t position = ints(r.position)[t * r.position.stride];
      const std::int32_t* pages = pages_of(r, ints(r.sequence)[t * r.sequence.stride]);
      const std::int64_t slot = static_cast<std::int64_t>(pages[position / r.page_size]) * r.page_size + position % r.page_size;
      const auto* x = elements<V>(op.x) + t * op.x.stride;
      const std::int64_t entry = slot * op.cache.stride + op.cache_column;
      for (std::int64_t i = 0; i < columns; i += 16) {
        const int lanes = lanes_left(columns, i);
        store_as(op.cache, entry + i, V::load_partial(x + i, lanes), lanes);
      }
    }
  });
}

LOCKSTEP_INSTANTIATE(cache_write, CacheWrite)

}  // namespace lockstep
