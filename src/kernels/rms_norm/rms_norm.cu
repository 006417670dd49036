// The CUDA form of rms_norm.h. Forward: a block per row. Backward: a group of 16 threads per row; for the gain's gradient a block per 16 columns, each of
// whose groups computes one chain of a segment.
#include "kernels/cuda/block_tools.h"
#include "kernels/cuda/prelude.h"
#include "kernels/row_tools.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
constexpr int kRowsABlock = 8;

// 1 / sqrt(mean(x^2) + eps) of one row; all threads of the group.
LOCKSTEP_DEVICE float row_scale(const Thread& t, const float* x, std::int64_t n, float eps) {
  const auto value = [x](std::int64_t i) { return x[i]; };
  const float mean = group_dot16(t, n, value, value) / static_cast<float>(n);
  return 1.0f / square_root(mean + eps);
}

// A block per row: all threads fetch it into shared memory, one group adds its squares, all write.
struct RmsNormForwardBody {
  static constexpr bool kCooperates = true;
  static constexpr int kThreads = 128, kChunk = 2048;  // elements in shared memory at once; 16 divides them, so that an element's chain is its lane's
  static constexpr std::size_t kSharedBytes = (kChunk + 1) * sizeof(float);
  RmsNormForward op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t n = op.x.cols;
    const float* x = floats(op.x) + t.block() * op.x.stride;
    const float* addend = op.addend ? floats(op.addend) + t.block() * op.addend.stride : nullptr;
    float* sum_row = op.addend ? floats(op.sum) + t.block() * op.sum.stride : nullptr;
    float* y = floats(op.y) + t.block() * op.y.stride;
    auto* line = t.shared<float>();
    float sum = 0.0f;
    for (std::int64_t begin = 0; begin < n; begin += kChunk) {
      const std::int64_t count = n - begin < kChunk ? n - begin : kChunk;
      for (std::int64_t i = t.index(); i < count; i += kThreads) {
        line[i] = addend ? x[begin + i] + addend[begin + i] : x[begin + i];
        if (addend) sum_row[begin + i] = line[i];
      }
      t.sync();
      for (std::int64_t i = t.lane(); t.group() == 0 && i < count; i += kLanes) sum = fused(line[i], line[i], sum);
      t.sync();
    }
    if (t.group() == 0) {
      const float mean = tree_sum(t, sum) / static_cast<float>(n);
      if (t.lane() == 0) line[kChunk] = 1.0f / square_root(mean + op.eps);
    }
    t.sync();
    const float r = line[kChunk];
    const float* normed = addend ? sum_row : x;  // of a sum, what this thread wrote: its elements of all chunks are 128 apart
    for (std::int64_t i = t.index(); i < n; i += kThreads) y[i] = (normed[i] * r) * load_stored(op.w, i);
  }
};

struct RmsNormBackwardBody {
  static constexpr bool kCooperates = true;
  RmsNormBackward op;
  float* scale;  // [T]: r of each row, for the gain's gradient
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = t.block() * kRowsABlock + t.group(), n = op.x.cols;
    if (row >= op.x.rows) return;
    const float* x = floats(op.x) + row * op.x.stride;
    const float* dy = floats(op.dy) + row * op.dy.stride;
    float* dx = floats(op.dx) + row * op.dx.stride;
    const float r = row_scale(t, x, n, op.eps);
    if (t.lane() == 0) scale[row] = r;
    const auto g = [&](std::int64_t i) { return dy[i] * load_stored(op.w, i); };
    const auto normalised = [&](std::int64_t i) { return x[i] * r; };
    const float mean = group_dot16(t, n, g, normalised) / static_cast<float>(n);
    const float* onto = op.onto ? floats(op.onto) + row * op.onto.stride : nullptr;
    for (std::int64_t i = t.lane(); i < n; i += kLanes) {
      const float own = r * (g(i) - normalised(i) * mean);
      dx[i] = onto ? onto[i] + own : own;
    }
  }
};

// ColumnChains of row_tools.h with a thread for each chain of each column.
struct RmsNormGainBody {
  static constexpr bool kCooperates = true;
  static constexpr int kChains = 16, kThreads = kChains * kLanes;
  static constexpr std::size_t kSharedBytes = kThreads * (sizeof(std::int64_t) + sizeof(float));
  RmsNormBackward op;
  const float* scale;
  bool finish;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    auto* ends = t.shared<std::int64_t>();
    auto* chains = reinterpret_cast<float*>(ends + kThreads);  // [kChains, kLanes]
    const std::int64_t column = t.block() * kLanes + t.lane(), rows = op.x.rows;
    const bool column_there = column < op.x.cols, deposits = column_there && t.group() == 0;
    BinGroup<Lane> bins;
    if (deposits) bins = BinGroup<Lane>(op.bins, 0, t.block(), t.lane());
    for (std::int64_t begin = 0; begin < rows;) {
      const std::int64_t end = segment_end(t, begin, ends);
      float sum = 0.0f;
      for (std::int64_t row = begin + t.group(); column_there && row < end; row += kChains)
        sum = fused(floats(op.dy)[row * op.dy.stride + column], floats(op.x)[row * op.x.stride + column] * scale[row], sum);
      for (int half = kChains; half >= 1; half /= 2) {
        if (half < kChains && t.group() < half) sum = sum + chains[(t.group() + half) * kLanes + t.lane()];
        t.sync();
        chains[t.index()] = sum;
        t.sync();
      }
      if (deposits) bins.deposit(Lane{sum});
      begin = end;
    }
    if (deposits) bins.close(finish, finish ? floats(op.gradient) + column : nullptr);
  }

 private:
  // Where the run of rows of one segment that begins at `begin` ends. All threads call it.
  LOCKSTEP_DEVICE std::int64_t segment_end(const Thread& t, std::int64_t begin, std::int64_t* shared) const {
    const std::int32_t* segment = ints(op.segment);
    const std::int32_t own = segment[begin / op.heads];
    for (std::int64_t at = begin;; at += t.count()) {
      const std::int64_t row = at + t.index();
      const std::int64_t end = least_of_block(t, row >= op.x.rows ? op.x.rows : segment[row / op.heads] != own ? row : at + t.count(), shared);
      if (end < at + t.count() || end >= op.x.rows) return end < op.x.rows ? end : op.x.rows;
    }
  }
};
}  // namespace

void launch(const RmsNormForward& op, Grid& grid) {
  grid.run(op.x.rows, RmsNormForwardBody::kThreads, RmsNormForwardBody{op}, RmsNormForwardBody::kSharedBytes);
}

void launch(const RmsNormBackward& op, Grid& grid) {
  float* scale = grid.scratch<float>(0, op.x.rows);
  grid.run((op.x.rows + kRowsABlock - 1) / kRowsABlock, kRowsABlock * kLanes, RmsNormBackwardBody{op, scale});
  if (op.gradient || op.bins)
    grid.run((op.x.cols + kLanes - 1) / kLanes, RmsNormGainBody::kThreads, RmsNormGainBody{op, scale, op.finish || !op.bins}, RmsNormGainBody::kSharedBytes);
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
