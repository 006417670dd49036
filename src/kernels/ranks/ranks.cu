// The CUDA forms of ranks.h: one thread per element.
#include "kernels/cuda/prelude.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
struct JoinBinsBody {
  JoinBins op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    using Bins = AccumulatorVec<Lane>;
    const std::int64_t row = item / op.into.cols, column = item % op.into.cols;
    const auto place = [&](const View& v) {
      return device_pointer<double>(v) + (row * v.stride / kLanes + column / kLanes) * Bins::kStorage + column % kLanes;
    };
    Bins sum = Bins::load(place(op.into));
    const Bins other = Bins::load(place(op.from));
    sum.bin0 = sum.bin0 + other.bin0;
    sum.bin1 = sum.bin1 + other.bin1;
    sum.bin2 = sum.bin2 + other.bin2;
    sum.normalise();
    sum.store(place(op.into));
  }
};

// Copies what ranks [first, first + count) hold; the others' elements are left to other launches.
struct PickBody {
  static constexpr int kRanks = 64;
  View y, parts, index;
  std::int64_t bounds[kRanks + 1];
  int first, count;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / y.cols, j = item % y.cols;
    const std::int64_t at = ints(index)[t * index.stride + (index.cols == 1 ? 0 : j)];
    if (at < bounds[0] || at >= bounds[count]) return;
    int rank = 0;
    while (at >= bounds[rank + 1]) ++rank;
    floats(y)[t * y.stride + j] = floats(parts)[((first + rank) * y.rows + t) * parts.stride + j];
  }
};
}  // namespace

void launch(const JoinBins& op, Grid& grid) { grid.each(op.into.rows * op.into.cols, JoinBinsBody{op}); }

void launch(const Pick& op, Grid& grid) {
  const int ranks = static_cast<int>(op.bounds.size()) - 1;
  for (int first = 0; first < ranks; first += PickBody::kRanks) {
    PickBody body{op.y, op.parts, op.index, {}, first, ranks - first < PickBody::kRanks ? ranks - first : PickBody::kRanks};
    for (int r = 0; r <= body.count; ++r) body.bounds[r] = op.bounds[static_cast<std::size_t>(first + r)];
    grid.each(op.y.size(), body);
  }
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
