// The CUDA form of cache.h: one thread per value.
#include "kernels/cache/keys.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
struct CacheWriteBody {
  CacheWrite op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / op.x.cols, i = item % op.x.cols;
    const Rows& r = op.rows;
    const std::int64_t entry = entry_of(op.cache, r, ints(r.sequence)[t * r.sequence.stride], ints(r.position)[t * r.position.stride]);
    store_as(op.cache, entry + op.cache_column + i, floats(op.x)[t * op.x.stride + i]);
  }
};
}  // namespace

void launch(const CacheWrite& op, Grid& grid) { grid.each(op.x.size(), CacheWriteBody{op}); }

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
