// The CUDA form of sharing.h: one thread per element.
#include "kernels/cuda/prelude.h"
#include "kernels/row_tools.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
struct GatherRowsBody {
  GatherRows op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / op.y.cols, i = item % op.y.cols;
    const std::int64_t from = ints(op.row_of)[t * op.row_of.stride] * op.x.stride + i, to = t * op.y.stride + i;
    if (op.x.dtype == DType::i32) ints(op.y)[to] = ints(op.x)[from];
    else floats(op.y)[to] = floats(op.x)[from];
  }
};

struct SlotSourceBody {
  SlotSource op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / op.slot_of.cols, j = item % op.slot_of.cols;
    const std::int64_t from = ints(op.row_of)[t * op.row_of.stride] * op.from.stride + j;
    ints(op.source)[ints(op.slot_of)[t * op.slot_of.stride + j]] = ints(op.from)[from];
  }
};

struct SumSharedRowsBody {
  SumSharedRows op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t r = item / op.y.cols, c = item % op.y.cols;
    const std::int32_t begin = ints(op.begin)[r * op.begin.stride], end = ints(op.begin)[(r + 1) * op.begin.stride];
    const auto part = [&](std::int32_t i) { return floats(op.x)[ints(op.row)[i * op.row.stride] * op.x.stride + c]; };
    float sum = 0.0f;
    if (end - begin == 1) {
      sum = part(begin);
    } else if (end > begin) {
      BinGroup<Lane> bins;
      for (std::int32_t i = begin; i < end; ++i) bins.deposit(Lane{part(i)});
      bins.close(true, &sum);
    }
    floats(op.y)[r * op.y.stride + c] = sum;
  }
};
}  // namespace

void launch(const GatherRows& op, Grid& grid) { grid.each(op.y.size(), GatherRowsBody{op}); }
void launch(const SlotSource& op, Grid& grid) { grid.each(op.slot_of.size(), SlotSourceBody{op}); }
void launch(const SumSharedRows& op, Grid& grid) { grid.each(op.y.size(), SumSharedRowsBody{op}); }

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
