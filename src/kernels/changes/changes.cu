// The CUDA form of changes.h: one thread per change.
#include "kernels/cuda/prelude.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
struct SetElementsBody {
  SetElements op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int32_t at = ints(op.offset)[item];
    const auto bits = static_cast<std::uint32_t>(ints(op.bits)[item]);
    if (op.to.dtype == DType::u8) device_pointer<std::uint8_t>(op.to)[at] = static_cast<std::uint8_t>(bits);
    else if (op.to.dtype == DType::bf16) device_pointer<Bf16>(op.to)[at] = Bf16{static_cast<std::uint16_t>(bits)};
    else device_pointer<std::uint32_t>(op.to)[at] = bits;
  }
};
}  // namespace

void launch(const SetElements& op, Grid& grid) { grid.each(op.offset.size(), SetElementsBody{op}); }

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
