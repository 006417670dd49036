// Index scores (index.h) in CUDA forms: shared by selection and loss.
#pragma once
#include "kernels/cache/keys.h"
#include "kernels/index/index.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

inline constexpr int kIndexHeads = kDots;
inline constexpr int kIndexThreads = 128;

LOCKSTEP_DEVICE float index_factor(std::int64_t count) { return 1.0f / square_root(static_cast<float>(count)); }
LOCKSTEP_DEVICE float relu(float x) { return 0.0f > x ? 0.0f : x; }  // lets a NaN through

// I of the rows first_row .. and their keys: scores[(row - first_row) * width + rank]. A block a row and 64 keys, a group of 16
// threads a key. Rows with at most `few` keys are left out.
struct IndexScoresBody {
  static constexpr bool kCooperates = true;
  View q, w, cache, selection, count;
  Rows rows;
  std::int64_t heads, size, first_row, few, key_blocks, width;
  float* scores;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = first_row + t.block() / key_blocks, at = t.block() % key_blocks * kKeyBlock;
    const RowKeys keys(rows, selection, count, row);
    if (keys.count <= few || at >= keys.count) return;
    const std::int64_t end = keys.count - at < kKeyBlock ? keys.count : at + kKeyBlock;
    const float *q_row = floats(q) + row * q.stride, *w_row = floats(w) + row * w.stride;
    const float head_factor = index_factor(heads), key_factor = index_factor(size);
    for (std::int64_t k = at + t.group(); k < end; k += t.count() / kLanes) {
      const std::int64_t entry = entry_of(cache, rows, keys.sequence, keys.position(k));
      float score = 0.0f;
      for (std::int64_t h = 0; h < heads; h += kIndexHeads) {
        const int here = static_cast<int>(heads - h < kIndexHeads ? heads - h : kIndexHeads);
        const auto key = [&](std::int64_t i) { return load_stored(cache, entry + i); };
        const float positive = relu(group_dots(
                                        t, size, here, [&](int j, std::int64_t i) { return q_row[(h + j) * size + i]; }, key) *
                                    key_factor);
        for (int j = 0; j < here; ++j) score = fused(w_row[h + j] * head_factor, t.from(positive, j * kLanesOfDot), score);
      }
      if (t.lane() == 0) scores[(row - first_row) * width + k] = score;
    }
  }
};

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
