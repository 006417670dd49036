// The CUDA forms of optimizer.h: one thread per element; the norm's sums are exact, so any split over threads and blocks is right.
#include "kernels/cuda/prelude.h"
#include "kernels/optimizer/adamw_step.h"
#include "kernels/optimizer/merged_bins.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
constexpr int kSquareThreads = 256;
constexpr std::int64_t kSquareRange = 16384;  // elements of one block

// Adds up the threads' bins, of which there are a power of two; the sum is in thread 0's. `shared` has three doubles a thread.
LOCKSTEP_DEVICE void merge_block(const Thread& t, MergedBins<Lane>& sum, double* shared) {
  for (int half = t.count() / 2; half >= 1; half /= 2) {
    double* other = shared + (t.index() % half) * 3;
    if (t.index() >= half && t.index() < 2 * half)
      for (int b = 0; b < 3; ++b) other[b] = sum.bin[b];
    t.sync();
    if (t.index() < half) sum.add(other[0], other[1], other[2]);
    t.sync();
  }
}

// Squares of a few tensors, a range of one of them a block.
struct SquareRangesBody {
  static constexpr bool kCooperates = true;
  static constexpr int kTensors = 64;
  static constexpr std::size_t kSharedBytes = kSquareThreads * 3 * sizeof(double);
  struct Tensor {
    const float* data;
    std::int64_t size, first_block;
  };
  Tensor tensors[kTensors];
  int count;
  double* partial;  // [blocks, 3]
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    int at = count - 1;
    while (at > 0 && tensors[at].first_block > t.block()) --at;  // tensors without elements have no block
    const Tensor& tensor = tensors[at];
    const std::int64_t begin = (t.block() - tensor.first_block) * kSquareRange, end = begin + kSquareRange < tensor.size ? begin + kSquareRange : tensor.size;
    auto bins = AccumulatorVec<Lane>::zero();
    static_assert(kSquareRange / kSquareThreads <= kDepositsBeforeCarry);
    for (std::int64_t i = begin + t.index(); i < end; i += kSquareThreads) {
      const LaneDouble wide = to_double(Lane{tensor.data[i]});
      bins.deposit(wide * wide);  // 48 bits: exact
    }
    bins.normalise();
    MergedBins<Lane> sum;
    sum.add(bins.bin0.x, bins.bin1.x, bins.bin2.x);
    merge_block(t, sum, t.shared<double>());
    if (t.index() == 0)
      for (int b = 0; b < 3; ++b) partial[t.block() * 3 + b] = sum.bin[b];
  }
};

// One block: the sum of all ranges and of the ranks' parts, to where the caller wants it.
struct SquareTotalBody {
  static constexpr bool kCooperates = true;
  const double* partial;
  std::int64_t ranges;
  View norm, parts, sum_out;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    constexpr std::int64_t kStorage = AccumulatorVec<Lane>::kStorage;
    MergedBins<Lane> sum;
    for (std::int64_t r = t.index(); r < ranges; r += t.count()) sum.add(partial[r * 3], partial[r * 3 + 1], partial[r * 3 + 2]);
    if (parts)
      for (std::int64_t r = t.index(); r < parts.rows; r += t.count()) {
        const double* part = device_pointer<double>(parts) + r * kStorage;
        sum.add(part[0], part[16], part[32]);
      }
    merge_block(t, sum, t.shared<double>());
    if (t.index() != 0) return;
    if (sum_out) {
      double* lanes = device_pointer<double>(sum_out);
      for (int i = 0; i < kStorage; ++i) lanes[i] = 0;
      for (int b = 0; b < 3; ++b) lanes[16 * b] = sum.bin[b];
    }
    if (norm) *floats(norm) = static_cast<float>(__builtin_sqrt(sum.total()));
  }
};

struct AdamWBody {
  AdamW op;
  LOCKSTEP_DEVICE void operator()(std::int64_t i) const {
    const auto c = AdamWConstants<Lane>::of(op, floats(op.norm));
    const AdamWElements<Lane> next = adamw_elements(c, {{floats(op.master)[i]}, {floats(op.m)[i]}, {floats(op.v)[i]}}, Lane{floats(op.gradient)[i]});
    floats(op.m)[i] = next.m.x;
    floats(op.v)[i] = next.v.x;
    floats(op.master_out)[i] = next.master.x;
    if (op.compute_out) store_as(op.compute_out, i, next.master.x);
  }
};

// A thread a lane of a group of bins, those beyond the end of a row too.
struct FinishBinsBody {
  FinishBins op;
  std::int64_t row, groups;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t group = item / kLanes, lane = item % kLanes, i = group % groups * kLanes + lane;
    double* place = device_pointer<double>(op.bins) + group * AccumulatorVec<Lane>::kStorage + lane;
    auto bins = AccumulatorVec<Lane>::load(place);
    bins.normalise();
    if (i < row) floats(op.gradient)[group / groups * row + i] = bins.total().x;
    AccumulatorVec<Lane>::zero().store(place);
  }
};
}  // namespace

void launch(const SquareSum& op, Grid& grid) {
  using Body = SquareRangesBody;
  std::int64_t ranges = 0;
  for (const View& g : op.gradients) ranges += (g.size() + kSquareRange - 1) / kSquareRange;
  double* partial = grid.scratch<double>(0, ranges * 3);
  Body body{{}, 0, partial};
  std::int64_t blocks = 0;
  const auto run = [&] {
    grid.run(blocks, kSquareThreads, body, Body::kSharedBytes);
    body.partial += blocks * 3;
    body.count = 0;
    blocks = 0;
  };
  for (const View& g : op.gradients) {
    if (g.size() == 0) continue;
    body.tensors[body.count++] = {device_pointer<float>(g), g.size(), blocks};
    blocks += (g.size() + kSquareRange - 1) / kSquareRange;
    if (body.count == Body::kTensors) run();
  }
  run();
  grid.run(1, kSquareThreads, SquareTotalBody{partial, ranges, op.norm, op.parts, op.sum}, Body::kSharedBytes);
}

void launch(const AdamW& op, Grid& grid) { grid.each(op.master.size(), AdamWBody{op}); }

void launch(const FinishBins& op, Grid& grid) {
  const std::int64_t row = op.row > 0 ? op.row : op.gradient.size();  // packed: one row
  if (row == 0) return;
  const std::int64_t groups = (row + kLanes - 1) / kLanes;
  grid.each(op.gradient.size() / row * groups * kLanes, FinishBinsBody{op, row, groups});
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
