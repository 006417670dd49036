// The CUDA form of bias.h: one thread per element, of experts one block per expert; for the gradient one thread per column of each bias.
#include "kernels/cuda/prelude.h"
#include "kernels/row_tools.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
struct BiasAddBody {
  BiasAdd op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / op.y.cols, i = item % op.y.cols;
    float& y = floats(op.y)[t * op.y.stride + i];
    y = y + load_stored(op.b, i);
  }
};

struct ExpertBiasAddBody {
  static constexpr bool kCooperates = false;
  BiasAdd op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int32_t* offsets = ints(op.offsets) + t.block();
    const std::int64_t n = op.y.cols, count = (offsets[1] - offsets[0]) * n;
    for (std::int64_t item = t.index(); item < count; item += t.count()) {
      float& y = floats(op.y)[(offsets[0] + item / n) * op.y.stride + item % n];
      y = y + load_stored(op.b, t.block() * op.b.stride + item % n);
    }
  }
};

struct BiasBackwardBody {
  BiasBackward op;
  bool finish;
  LOCKSTEP_DEVICE std::int32_t segment(std::int64_t t) const { return ints(op.segment)[op.row_of ? ints(op.row_of)[t] : t]; }
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t g = item / op.dy.cols, i = item % op.dy.cols;
    const std::int64_t end = op.offsets ? ints(op.offsets)[g + 1] : op.dy.rows;
    BinGroup<Lane> bins(op.bins, g, i / kLanes, i % kLanes);
    ColumnChains<Lane> chains;
    for (std::int64_t t = op.offsets ? ints(op.offsets)[g] : 0; t < end;) {
      const std::int64_t begin = t;
      chains.clear();
      for (; t < end && segment(t) == segment(begin); ++t) chains.add(t - begin, Lane{floats(op.dy)[t * op.dy.stride + i]}, Lane{1.0f});
      bins.deposit(chains.sum());
    }
    bins.close(finish, finish ? floats(op.gradient) + g * op.gradient.stride + i : nullptr);
  }
};
}  // namespace

void launch(const BiasAdd& op, Grid& grid) {
  if (op.offsets) return grid.run(op.offsets.rows - 1, 256, ExpertBiasAddBody{op});
  grid.each(op.y.size(), BiasAddBody{op});
}
void launch(const BiasBackward& op, Grid& grid) {
  const std::int64_t items = op.offsets ? op.offsets.rows - 1 : 1;
  grid.each(items * op.dy.cols, BiasBackwardBody{op, op.finish || !op.bins});
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
