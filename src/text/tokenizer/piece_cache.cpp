#include "text/tokenizer/piece_cache.h"

#include <atomic>

namespace lockstep {

std::uint64_t PieceCache::new_owner() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace lockstep
