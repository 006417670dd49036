// The CUDA form of attention.h: one block per row and up to four heads of a kv head (for the target: and 64 keys), a group of 16 threads per
// score, one thread per head for the chains over scores, one per column for those over values. The gradient of entries is gathered, one block
// per few neighbouring keys of a kv head: it recomputes the P and dS that it needs, so no memory grows with rows times keys.
#include "kernels/attention/tile.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
struct AttentionForwardBody {
  static constexpr bool kCooperates = true;
  AttentionForward op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const AttentionShape& shape = op.shape;
    const HeadTile tile(shape, t.block());
    const RowKeys keys(op.rows, op.selection, op.count, tile.row, shape.window);
    const float* q = floats(op.q) + tile.row * op.q.stride + tile.head * shape.key;
    float* o = floats(op.o) + tile.row * op.o.stride + tile.head * shape.value;
    const std::int64_t key_at = key_column(shape, tile.kv_head), value_at = value_column(shape, tile.kv_head);
    auto& shared = *t.shared<AttentionShared>();
    const bool of_head = t.index() < tile.heads;  // the thread with head index()'s maximum and denominator
    float largest = 0.0f, denominator = 0.0f;
    for (std::int64_t at = keys.first, n; at < keys.count; at += n) {
      n = (at / kKeyBlock + 1) * kKeyBlock - at;  // a window may begin inside a block
      if (n > keys.count - at) n = keys.count - at;
      const bool first = at == keys.first, last = at + n == keys.count, sinks = last && op.sinks;
      find_entries(t, op.cache, op.rows, keys, at, n, shared.entry);
      t.sync();
      tile_scores(t, op.cache, shared.entry, n, key_at, shape.key, q, tile.heads,
                  [&](int j, std::int64_t k, float dot) { shared.s[j][k] = dot * shape.scale; });
      t.sync();
      if (of_head) {
        const float* s = shared.s[t.index()];
        float m = s[0];
        for (std::int64_t k = 1; k < n; ++k) m = s[k] > m ? s[k] : m;
        const float old = largest;
        largest = first || m > old ? m : old;
        shared.largest[t.index()] = largest;
        shared.alpha[t.index()] = exp_of(old - largest);
      }
      t.sync();
      for (std::int64_t i = t.index(); i < tile.heads * kKeyBlock; i += t.count()) {
        float* s = shared.s[i / kKeyBlock] + i % kKeyBlock;
        if (i % kKeyBlock < n) *s = exp_of(*s - shared.largest[i / kKeyBlock]);
      }
      t.sync();
      if (of_head) {
        float sum = 0.0f;
        for (std::int64_t k = 0; k < n; ++k) sum = sum + shared.s[t.index()][k];
        denominator = first ? sum : fused(denominator, shared.alpha[t.index()], sum);
        if (sinks) {
          const float sink = load_stored(op.sinks, tile.head + t.index()), old = largest;
          largest = sink > old ? sink : old;
          shared.sink_alpha[t.index()] = exp_of(old - largest);
          denominator = fused(denominator, shared.sink_alpha[t.index()], exp_of(sink - largest));
        }
        shared.denominator[t.index()] = denominator;
        if (op.keys_read) ints(op.keys_read)[tile.row * op.keys_read.stride + tile.head + t.index()] += static_cast<std::int32_t>(n);
      }
      t.sync();
      for (std::int64_t c = t.index(); c < shape.value; c += t.count()) {
        float sum[kHeadTile] = {};
        for (std::int64_t k = 0; k < n; ++k) {
          const float x = load_stored(op.cache, shared.entry[k] + value_at + c);
          for (int j = 0; j < kHeadTile; ++j)
            if (j < tile.heads) sum[j] = fused(shared.s[j][k], x, sum[j]);
        }
        for (int j = 0; j < kHeadTile; ++j) {
          if (j >= tile.heads) continue;
          float* to = o + j * shape.value + c;
          float acc = first ? sum[j] : fused(*to, shared.alpha[j], sum[j]);
          if (sinks) acc = acc * shared.sink_alpha[j];
          *to = last ? acc / shared.denominator[j] : acc;
        }
      }
      t.sync();
    }
    if (of_head) floats(op.log_sum)[tile.row * op.log_sum.stride + tile.head + t.index()] = largest + log_of(denominator);
  }
};

// A group per row and head.
struct AttentionSinksBody {
  static constexpr bool kCooperates = true;
  AttentionSinks op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t heads = op.dsink.cols, value = op.dout.cols / heads;
    const std::int64_t item = t.block() * (t.count() / kLanes) + t.group(), row = item / heads, head = item % heads;
    if (row >= op.dsink.rows) return;
    const float *dout = floats(op.dout) + row * op.dout.stride + head * value, *o = floats(op.o) + row * op.o.stride + head * value;
    const float delta = group_dot16(
        t, value, [&](std::int64_t i) { return dout[i]; }, [&](std::int64_t i) { return o[i]; });
    if (t.lane() > 0) return;
    const float p = exp_of(load_stored(op.sinks, head) - floats(op.log_sum)[row * op.log_sum.stride + head]);
    floats(op.dsink)[row * op.dsink.stride + head] = p * (0.0f - delta);
  }
};

struct AttentionTargetBody {
  static constexpr bool kCooperates = true;
  AttentionTarget op;
  std::int64_t key_blocks;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const AttentionShape& shape = op.shape;
    const std::int64_t row = t.block() / key_blocks, at = t.block() % key_blocks * kKeyBlock;
    const RowKeys keys(op.rows, op.selection, op.count, row);
    if (at >= keys.count) return;
    const std::int64_t n = keys.count - at < kKeyBlock ? keys.count - at : kKeyBlock;
    auto& shared = *t.shared<AttentionShared>();
    find_entries(t, op.cache, op.rows, keys, at, n, shared.entry);
    t.sync();
    float sum = 0.0f;  // of key index()
    for (std::int64_t h = 0; h < shape.heads; h += kHeadTile) {
      const int heads = static_cast<int>(shape.heads - h < kHeadTile ? shape.heads - h : kHeadTile);
      tile_scores(t, op.cache, shared.entry, n, 0, shape.key, floats(op.q) + row * op.q.stride + h * shape.key, heads,
                  [&](int j, std::int64_t k, float dot) { shared.s[j][k] = exp_of(dot * shape.scale - floats(op.log_sum)[row * op.log_sum.stride + h + j]); });
      t.sync();
      if (t.index() < n)
        for (int j = 0; j < heads; ++j) sum = sum + shared.s[j][t.index()];
      t.sync();
    }
    if (t.index() >= n || at + t.index() < keys.first) return;
    float& target = floats(op.target)[row * op.target.stride + at + t.index()];
    target = target + sum;
  }
};

// delta[t, h] = dot16(do, o), a group per row and head.
struct AttentionDeltaBody {
  static constexpr bool kCooperates = true;
  AttentionBackward op;
  float* delta;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t item = t.block() * (t.count() / kLanes) + t.group(), row = item / op.shape.heads, at = item % op.shape.heads * op.shape.value;
    if (row >= op.q.rows) return;
    const float *dout = floats(op.dout) + row * op.dout.stride + at, *o = floats(op.o) + row * op.o.stride + at;
    const float sum = group_dot16(
        t, op.shape.value, [&](std::int64_t i) { return dout[i]; }, [&](std::int64_t i) { return o[i]; });
    if (t.lane() == 0) delta[item] = sum;
  }
};

struct AttentionQueryBody {
  static constexpr bool kCooperates = true;
  AttentionBackward op;
  const float* delta;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const AttentionShape& shape = op.shape;
    const HeadTile tile(shape, t.block());
    const RowKeys keys(op.rows, op.selection, op.count, tile.row, shape.window);
    const float* q = floats(op.q) + tile.row * op.q.stride + tile.head * shape.key;
    const float* dout = floats(op.dout) + tile.row * op.dout.stride + tile.head * shape.value;
    const float* log_sum = floats(op.log_sum) + tile.row * op.log_sum.stride + tile.head;
    float* dq = floats(op.dq) + tile.row * op.dq.stride + tile.head * shape.key;
    const std::int64_t key_at = key_column(shape, tile.kv_head), value_at = value_column(shape, tile.kv_head);
    auto& shared = *t.shared<AttentionShared>();
    for (std::int64_t at = keys.first, n; at < keys.count; at += n) {
      n = (at / kKeyBlock + 1) * kKeyBlock - at;  // a window may begin inside a block
      if (n > keys.count - at) n = keys.count - at;
      const bool first = at == keys.first, last = at + n == keys.count;
      find_entries(t, op.cache, op.rows, keys, at, n, shared.entry);
      t.sync();
      // P and then dS of a key are written and read by the same thread.
      tile_scores(t, op.cache, shared.entry, n, key_at, shape.key, q, tile.heads,
                  [&](int j, std::int64_t k, float dot) { shared.s[j][k] = exp_of(dot * shape.scale - log_sum[j]); });
      tile_scores(t, op.cache, shared.entry, n, value_at, shape.value, dout, tile.heads,
                  [&](int j, std::int64_t k, float dot) { shared.s[j][k] = shared.s[j][k] * (dot - delta[tile.row * shape.heads + tile.head + j]); });
      t.sync();
      for (std::int64_t c = t.index(); c < shape.key; c += t.count()) {
        float sum[kHeadTile] = {};
        if (!first)
          for (int j = 0; j < kHeadTile; ++j)
            if (j < tile.heads) sum[j] = dq[j * shape.key + c];
        for (std::int64_t k = 0; k < n; ++k) {
          const float x = load_stored(op.cache, shared.entry[k] + key_at + c);
          for (int j = 0; j < kHeadTile; ++j)
            if (j < tile.heads) sum[j] = fused(shared.s[j][k], x, sum[j]);
        }
        for (int j = 0; j < kHeadTile; ++j)
          if (j < tile.heads) dq[j * shape.key + c] = last ? sum[j] * shape.scale : sum[j];
      }
      t.sync();
    }
  }
};

constexpr int kEntryKeys = 8;    // keys of a block; a divisor of kKeyBlock, so that all are seen first by rows of one query block
constexpr int kEntryPairs = 16;  // (row, head) pairs whose P and dS stand in shared memory
constexpr int kEntryThreads = 2 * kEntryKeys * kEntryPairs;

struct EntryShared {
  float p[kEntryPairs][kEntryKeys], ds[kEntryPairs][kEntryKeys];  // ds: times the scale
  bool sees[kEntryPairs][kEntryKeys];                             // whether the row attends to the key
};

// dentry of kEntryKeys keys and kColumns columns a thread (kColumns * kEntryThreads of a kv head's key and value).
template <int kColumns>
struct AttentionEntryBody {
  static constexpr bool kCooperates = true;
  AttentionBackward op;
  const float* delta;
  std::int64_t columns, chunks;  // of a kv head; blocks that share its columns
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const AttentionShape& shape = op.shape;
    const std::int64_t kv_head = t.block() / chunks % shape.kv_heads, group = shape.heads / shape.kv_heads, h0 = kv_head * group;
    const SequenceKeys keys(op.rows, t.block() / chunks / shape.kv_heads, kEntryKeys);
    if (keys.sequence < 0) return;
    const std::int64_t begin_column = t.block() % chunks * kColumns * kEntryThreads + t.index();
    const int leaves = head_leaf_count(group);
    const std::int64_t leaf_heads = group / leaves;
    auto& shared = *t.shared<EntryShared>();
    float total[kColumns][kEntryKeys] = {};
    std::int64_t row = keys.zero + keys.key;
    if (row < keys.begin) row = keys.begin;
    std::int64_t end = keys.end;  // of the rows that see one of the keys
    if (shape.window > 0 && end > keys.zero + keys.key + kEntryKeys - 1 + shape.window) end = keys.zero + keys.key + kEntryKeys - 1 + shape.window;
    for (std::int64_t stop; row < end; row = stop) {
      stop = keys.zero + ((row - keys.zero) / kKeyBlock + 1) * kKeyBlock;
      if (stop > end) stop = end;
      float sum[kColumns][kEntryKeys], left[3][kColumns][kEntryKeys];  // left[l]: of 2^l joined leaves that wait for as many more
      for (int g = 0; g < leaves; ++g) {
        for (int m = 0; m < kColumns; ++m)
          for (int j = 0; j < kEntryKeys; ++j) sum[m][j] = 0.0f;
        const std::int64_t head = h0 + g * leaf_heads, pairs = (stop - row) * leaf_heads;
        for (std::int64_t first = 0; first < pairs; first += kEntryPairs) {
          fill(t, shared, keys, kv_head, row, head, leaf_heads, first, pairs);
          for (std::int64_t i = 0; i < kEntryPairs && first + i < pairs; ++i)
            add_pair<kColumns>(shared, i, row + (first + i) / leaf_heads, head + (first + i) % leaf_heads, begin_column, sum);
          t.sync();
        }
        join(g, sum, left);
      }
      for (int m = 0; m < kColumns; ++m)
        for (int j = 0; j < kEntryKeys; ++j) total[m][j] = total[m][j] + sum[m][j];
    }
    for (int m = 0; m < kColumns; ++m) {
      const std::int64_t c = begin_column + m * kEntryThreads;
      if (c >= columns) continue;
      const std::int64_t to = c < shape.key ? key_column(shape, kv_head) + c : value_column(shape, kv_head) + c - shape.key;
      for (int j = 0; j < kEntryKeys; ++j)
        if (j < keys.count) floats(op.dentry)[(keys.entry + keys.key + j) * op.dentry.stride + to] = total[m][j];
    }
  }

 private:
  // P and dS of the pairs [first, first + kEntryPairs) of the rows from `row` on and leaf_heads heads from `head` on; all threads.
  LOCKSTEP_DEVICE void fill(const Thread& t, EntryShared& shared, const SequenceKeys& keys, std::int64_t kv_head, std::int64_t row, std::int64_t head,
                            std::int64_t leaf_heads, std::int64_t first, std::int64_t pairs) const {
    const AttentionShape& shape = op.shape;
    const int part = t.index() / (kEntryKeys * kEntryPairs), i = t.index() / kEntryKeys % kEntryPairs, j = t.index() % kEntryKeys;
    const std::int64_t r = row + (first + i) / leaf_heads, h = head + (first + i) % leaf_heads;
    bool sees = first + i < pairs && j < keys.count;
    if (sees) sees = RowKeys(op.rows, op.selection, op.count, r, shape.window).rank_of(keys.key + j) >= 0;
    if (sees) {
      const std::int64_t entry = entry_of(op.cache, op.rows, keys.sequence, keys.key + j);
      if (part == 0) {
        const std::int64_t at = entry + key_column(shape, kv_head);
        const float* q = floats(op.q) + r * op.q.stride + h * shape.key;
        const float dot = thread_dot16(
            shape.key, [&](std::int64_t c) { return q[c]; }, [&](std::int64_t c) { return load_stored(op.cache, at + c); });
        shared.p[i][j] = exp_of(dot * shape.scale - floats(op.log_sum)[r * op.log_sum.stride + h]);
      } else {
        const std::int64_t at = entry + value_column(shape, kv_head);
        const float* dout = floats(op.dout) + r * op.dout.stride + h * shape.value;
        const float dot = thread_dot16(
            shape.value, [&](std::int64_t c) { return dout[c]; }, [&](std::int64_t c) { return load_stored(op.cache, at + c); });
        shared.ds[i][j] = dot - delta[r * shape.heads + h];
      }
    }
    t.sync();
    if (part == 0) {
      shared.sees[i][j] = sees;
      if (sees) shared.ds[i][j] = (shared.p[i][j] * shared.ds[i][j]) * shape.scale;
    }
    t.sync();
  }

  // The terms of pair i of shared memory (row r, head h).
  template <int kMost>
  LOCKSTEP_DEVICE void add_pair(const EntryShared& shared, std::int64_t i, std::int64_t r, std::int64_t h, std::int64_t begin_column,
                                float (&sum)[kMost][kEntryKeys]) const {
    const AttentionShape& shape = op.shape;
    for (int m = 0; m < kMost; ++m) {
      const std::int64_t c = begin_column + m * kEntryThreads, v = shape.value_in_key ? c : c - shape.key;
      const bool of_key = c < shape.key, of_value = v >= 0 && v < shape.value;
      const float q = of_key ? floats(op.q)[r * op.q.stride + h * shape.key + c] : 0.0f;
      const float dout = of_value ? floats(op.dout)[r * op.dout.stride + h * shape.value + v] : 0.0f;
      for (int j = 0; j < kEntryKeys; ++j) {
        if (!shared.sees[i][j]) continue;
        if (of_key) sum[m][j] = fused(shared.ds[i][j], q, sum[m][j]);
        if (of_value) sum[m][j] = fused(shared.p[i][j], dout, sum[m][j]);
      }
    }
  }

  // Joins leaf g, held in sum, with those before it, pairwise; after the last leaf sum is the whole. Leaf counts are powers of two.
  LOCKSTEP_DEVICE static void join(int g, float (&sum)[kColumns][kEntryKeys], float (&left)[3][kColumns][kEntryKeys]) {
    bool waits = false;
    for (int l = 0; l < 3; ++l) {
      if (waits) continue;
      waits = (g >> l & 1) == 0;
      for (int m = 0; m < kColumns; ++m)
        for (int j = 0; j < kEntryKeys; ++j) {
          if (waits) left[l][m][j] = sum[m][j];
          else sum[m][j] = left[l][m][j] + sum[m][j];
        }
    }
  }
};
}  // namespace

void launch(const AttentionForward& op, Grid& grid) {
  grid.run(head_tiles(op.q.rows, op.shape), kAttentionThreads, AttentionForwardBody{op}, sizeof(AttentionShared));
}

void launch(const AttentionSinks& op, Grid& grid) {
  const std::int64_t of_block = kAttentionThreads / kLanes;
  grid.run((op.dsink.size() + of_block - 1) / of_block, kAttentionThreads, AttentionSinksBody{op});
}

void launch(const AttentionTarget& op, Grid& grid) {
  const std::int64_t key_blocks = (op.target.cols + kKeyBlock - 1) / kKeyBlock;
  grid.run(op.q.rows * key_blocks, kAttentionThreads, AttentionTargetBody{op, key_blocks}, sizeof(AttentionShared));
}

void launch(const AttentionBackward& op, Grid& grid) {
  const AttentionShape& shape = op.shape;
  const std::int64_t pairs = op.q.rows * shape.heads, of_block = kAttentionThreads / kLanes;
  float* delta = grid.scratch<float>(0, pairs);
  grid.run((pairs + of_block - 1) / of_block, kAttentionThreads, AttentionDeltaBody{op, delta});
  grid.run(head_tiles(op.q.rows, shape), kAttentionThreads, AttentionQueryBody{op, delta}, sizeof(AttentionShared));
  const std::int64_t columns = shape.key + (shape.value_in_key ? 0 : shape.value), blocks = key_tiles(op.rows, op.dentry.rows, kEntryKeys) * shape.kv_heads;
  if (columns <= kEntryThreads) return grid.run(blocks, kEntryThreads, AttentionEntryBody<1>{op, delta, columns, 1}, sizeof(EntryShared));
  const std::int64_t chunks = (columns + 3 * kEntryThreads - 1) / (3 * kEntryThreads);
  grid.run(blocks * chunks, kEntryThreads, AttentionEntryBody<3>{op, delta, columns, chunks}, sizeof(EntryShared));
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
