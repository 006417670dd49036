// The CUDA bodies of index_loss (index.h): per row its loss and dI; per row and head dw and dq; per key dk, gathered.
#pragma once
#include "kernels/index/scores.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

struct RowLossShared {
  float x[kKeyBlock], y[kKeyBlock];
  float largest;
};

// Of one row, a block of 64 threads: scores becomes dI. Chains over the keys are thread 0's.
struct IndexRowLossBody {
  static constexpr bool kCooperates = true;
  IndexLoss op;
  float* scores;
  std::int64_t width;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = t.block(), i = t.index();
    const RowKeys keys(op.rows, op.selection, op.count, row);
    const float* target = floats(op.target) + row * op.target.stride;
    float* score = scores + row * width;
    auto& shared = *t.shared<RowLossShared>();

    // max + log(sum of exp(I - max)) in blocks of 64, as attention's softmax; the target's sum.
    float largest = 0.0f, denominator = 0.0f, total = 0.0f;
    for (std::int64_t at = 0; at < keys.count; at += kKeyBlock) {
      const std::int64_t n = keys.count - at < kKeyBlock ? keys.count - at : kKeyBlock;
      if (i < n) shared.x[i] = score[at + i], shared.y[i] = target[at + i];
      t.sync();
      const float old = largest;
      if (i == 0) {
        float fresh = shared.x[0];
        for (std::int64_t k = 1; k < n; ++k) fresh = shared.x[k] > fresh ? shared.x[k] : fresh;
        if (at == 0 || fresh > largest) largest = fresh;
        shared.largest = largest;
        for (std::int64_t k = 0; k < n; ++k) total = total + shared.y[k];
      }
      t.sync();
      if (i < n) shared.x[i] = exp_of(shared.x[i] - shared.largest);
      t.sync();
      if (i == 0) {
        float sum = 0.0f;
        for (std::int64_t k = 0; k < n; ++k) sum = sum + shared.x[k];
        denominator = at == 0 ? sum : fused(denominator, exp_of(old - largest), sum);
      }
      t.sync();
    }
    if (i == 0) shared.x[0] = largest + log_of(denominator), shared.x[1] = total;
    t.sync();
    const float log_sum = shared.x[0];
    total = shared.x[1];
    t.sync();

    float loss = 0.0f;
    for (std::int64_t at = 0; at < keys.count; at += kKeyBlock) {
      const std::int64_t n = keys.count - at < kKeyBlock ? keys.count - at : kKeyBlock;
      if (i < n) {
        const float share = target[at + i] / total, log_model = score[at + i] - log_sum;
        score[at + i] = op.weight * (exp_of(log_model) - share);
        shared.x[i] = share;
        shared.y[i] = log_of(share > 1e-30f ? share : 1e-30f) - log_model;
      }
      t.sync();
      if (i == 0)
        for (std::int64_t k = 0; k < n; ++k) loss = fused(shared.x[k], shared.y[k], loss);
      t.sync();
    }
    if (i == 0) floats(op.loss)[row * op.loss.stride] = loss;
  }
};

// g of a head and key: the gradient of their dot product. `dot` is scaled.
LOCKSTEP_DEVICE float index_dot_gradient(float dot, float di, float weight, float key_factor) { return dot > 0.0f ? (di * weight) * key_factor : 0.0f; }

struct IndexQueryShared {
  std::int64_t entry[kKeyBlock];
  float g[kIndexHeads][kKeyBlock], relu[kIndexHeads][kKeyBlock];
};

// dq and dw of a row and up to kIndexHeads heads: a group of 16 threads per dot product, then a thread per column or head.
struct IndexQueryBody {
  static constexpr bool kCooperates = true;
  IndexLoss op;
  const float* di;
  std::int64_t width, tiles;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = t.block() / tiles, h0 = t.block() % tiles * kIndexHeads, size = op.size;
    const int heads = static_cast<int>(op.heads - h0 < kIndexHeads ? op.heads - h0 : kIndexHeads);
    const RowKeys keys(op.rows, op.selection, op.count, row);
    const float *q = floats(op.q) + row * op.q.stride + h0 * size, *w = floats(op.w) + row * op.w.stride + h0;
    float* dq = floats(op.dq) + row * op.dq.stride + h0 * size;
    const float head_factor = index_factor(op.heads), key_factor = index_factor(size);
    auto& shared = *t.shared<IndexQueryShared>();
    float dw = 0.0f;  // of head index()
    for (std::int64_t at = 0; at < keys.count; at += kKeyBlock) {
      const std::int64_t n = keys.count - at < kKeyBlock ? keys.count - at : kKeyBlock;
      const float* d = di + row * width + at;
      for (std::int64_t k = t.index(); k < n; k += t.count()) shared.entry[k] = entry_of(op.cache, op.rows, keys.sequence, keys.position(at + k));
      t.sync();
      for (std::int64_t k = t.group(); k < n; k += t.count() / kLanes) {
        const std::int64_t entry = shared.entry[k];
        const auto key = [&](std::int64_t i) { return load_stored(op.cache, entry + i); };
        const float dot = group_dots(
                              t, size, heads, [&](int j, std::int64_t i) { return q[j * size + i]; }, key) *
                          key_factor;
        const int j = t.lane() / kLanesOfDot;
        if (t.lane() % kLanesOfDot != 0 || j >= heads) continue;
        shared.relu[j][k] = relu(dot);
        shared.g[j][k] = index_dot_gradient(dot, d[k], w[j] * head_factor, key_factor);
      }
      t.sync();
      if (t.index() < heads)
        for (std::int64_t k = 0; k < n; ++k) dw = fused(d[k], shared.relu[t.index()][k], dw);
      for (std::int64_t c = t.index(); c < size; c += t.count()) {
        float sum[kIndexHeads] = {};
        if (at > 0)
          for (int j = 0; j < kIndexHeads; ++j)
            if (j < heads) sum[j] = dq[j * size + c];
        for (std::int64_t k = 0; k < n; ++k) {
          const float x = load_stored(op.cache, shared.entry[k] + c);
          for (int j = 0; j < kIndexHeads; ++j)
            if (j < heads) sum[j] = fused(shared.g[j][k], x, sum[j]);
        }
        for (int j = 0; j < kIndexHeads; ++j)
          if (j < heads) dq[j * size + c] = sum[j];
      }
      t.sync();
    }
    if (t.index() < heads) floats(op.dw)[row * op.dw.stride + h0 + t.index()] = dw * head_factor;
  }
};

inline constexpr int kIndexKeys = 8, kIndexPairs = kIndexThreads / kIndexKeys;  // keys of a block; (row, head) pairs in shared memory

struct IndexKeyShared {
  float g[kIndexPairs][kIndexKeys];
  bool sees[kIndexPairs][kIndexKeys];  // whether the row attends to the key
};

// dk of kIndexKeys keys and kIndexThreads columns: g of the rows that see them is computed again, a thread a pair and key; then a
// thread per column adds each row's chain over the heads.
struct IndexKeyBody {
  static constexpr bool kCooperates = true;
  IndexLoss op;
  const float* di;
  std::int64_t width, chunks;  // chunks: blocks that share the columns
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const SequenceKeys keys(op.rows, t.block() / chunks, kIndexKeys);
    if (keys.sequence < 0) return;
    const std::int64_t c = t.block() % chunks * kIndexThreads + t.index(), size = op.size, first_row = keys.zero + keys.key;
    const std::int64_t pairs = (keys.end - first_row) * op.heads;
    const int own_pair = t.index() / kIndexKeys, own_key = t.index() % kIndexKeys;
    const float head_factor = index_factor(op.heads), key_factor = index_factor(size);
    auto& shared = *t.shared<IndexKeyShared>();
    float total[kIndexKeys] = {}, sum[kIndexKeys] = {};
    for (std::int64_t first = 0; first < pairs; first += kIndexPairs) {
      const std::int64_t pair = first + own_pair, row = first_row + pair / op.heads, h = pair % op.heads;
      std::int64_t rank = -1;
      if (pair < pairs && own_key < keys.count) rank = RowKeys(op.rows, op.selection, op.count, row).rank_of(keys.key + own_key);
      shared.sees[own_pair][own_key] = rank >= 0;
      if (rank >= 0) {
        const std::int64_t entry = entry_of(op.cache, op.rows, keys.sequence, keys.key + own_key);
        const float* q = floats(op.q) + row * op.q.stride + h * size;
        const float dot = thread_dot16(
                              size, [&](std::int64_t i) { return q[i]; }, [&](std::int64_t i) { return load_stored(op.cache, entry + i); }) *
                          key_factor;
        shared.g[own_pair][own_key] = index_dot_gradient(dot, di[row * width + rank], floats(op.w)[row * op.w.stride + h] * head_factor, key_factor);
      }
      t.sync();
      if (c < size)
        for (std::int64_t i = 0; i < kIndexPairs && first + i < pairs; ++i) {
          const std::int64_t r = first_row + (first + i) / op.heads, head = (first + i) % op.heads;
          const float q = floats(op.q)[r * op.q.stride + head * size + c];
          for (int j = 0; j < kIndexKeys; ++j) {
            if (!shared.sees[i][j]) continue;
            sum[j] = fused(shared.g[i][j], q, head == 0 ? 0.0f : sum[j]);
            if (head == op.heads - 1) total[j] = total[j] + sum[j];
          }
        }
      t.sync();
    }
    if (c >= size) return;
    for (int j = 0; j < kIndexKeys; ++j)
      if (j < keys.count) floats(op.dk)[(keys.begin + keys.key + j) * op.dk.stride + c] = total[j];
  }
};

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
