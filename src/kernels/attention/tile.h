// Block-level attention for CUDA forms: one row and up to kHeadTile heads of one kv head, and its keys 64 at a time.
#pragma once
#include "kernels/cache/keys.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

inline constexpr int kHeadTile = kDots;
inline constexpr int kAttentionThreads = 128;

// Columns of an entry where the key and the value of a kv head begin.
LOCKSTEP_DEVICE std::int64_t key_column(const AttentionShape& shape, std::int64_t kv_head) { return shape.value_in_key ? 0 : kv_head * shape.key; }
LOCKSTEP_DEVICE std::int64_t value_column(const AttentionShape& shape, std::int64_t kv_head) {
  return shape.value_in_key ? 0 : shape.kv_heads * shape.key + kv_head * shape.value;
}

struct HeadTile {
  std::int64_t row, kv_head, head;  // head: the first of them
  int heads;
  // Of block `block` of head_tiles(rows, shape).
  LOCKSTEP_DEVICE HeadTile(const AttentionShape& shape, std::int64_t block) {
    const std::int64_t group = shape.heads / shape.kv_heads, tiles = (group + kHeadTile - 1) / kHeadTile, first = block % tiles * kHeadTile;
    kv_head = block / tiles % shape.kv_heads;
    row = block / tiles / shape.kv_heads;
    head = kv_head * group + first;
    heads = static_cast<int>(group - first < kHeadTile ? group - first : kHeadTile);
  }
};
inline std::int64_t head_tiles(std::int64_t rows, const AttentionShape& shape) { return rows * shape.kv_heads * ((shape.group() + kHeadTile - 1) / kHeadTile); }

// What the block shares.
struct AttentionShared {
  std::int64_t entry[kKeyBlock];  // of the cache
  float s[kHeadTile][kKeyBlock];  // scores, and what becomes of them
  float alpha[kHeadTile], largest[kHeadTile], denominator[kHeadTile], sink_alpha[kHeadTile];
};

// The entries of the row's keys [at, at + n); a sync must follow.
LOCKSTEP_DEVICE void find_entries(const Thread& t, const View& cache, const Rows& rows, const RowKeys& keys, std::int64_t at, std::int64_t n,
                                  std::int64_t* entry) {
  for (std::int64_t k = t.index(); k < n; k += t.count()) entry[k] = entry_of(cache, rows, keys.sequence, keys.position(at + k));
}

// result(head of the tile, key, dot16 of the head's query with the key) for n keys, called by one thread, which for a head and key is
// always the same; q: of the tile's first head, the next stands `width` further. An entry's key is its columns [column, column + width).
template <class Result>
LOCKSTEP_DEVICE void tile_scores(const Thread& t, const View& cache, const std::int64_t* entry, std::int64_t n, std::int64_t column, std::int64_t width,
                                 const float* q, int heads, const Result& result) {
  for (std::int64_t k = t.group(); k < n; k += t.count() / kLanes) {
    const std::int64_t from = entry[k] + column;
    const auto key = [&](std::int64_t i) { return load_stored(cache, from + i); };
    const float dot = group_dots(
        t, width, heads, [&](int j, std::int64_t i) { return q[j * width + i]; }, key);
    if (t.lane() % kLanesOfDot == 0 && t.lane() / kLanesOfDot < heads) result(t.lane() / kLanesOfDot, k, dot);
  }
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
