// The CUDA form of value.h: one thread a row.
#include "kernels/cuda/prelude.h"
#include "kernels/row_tools.h"
#include "kernels/value/value_row.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
struct ValueLossBody {
  ValueLoss op;
  LOCKSTEP_DEVICE void operator()(std::int64_t t) const { value_row<Lane>(op, t); }
};
}  // namespace

void launch(const ValueLoss& op, Grid& grid) { grid.each(op.value.rows, ValueLossBody{op}); }

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
