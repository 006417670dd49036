// Declares the launch() of every kernel of the table, so that one CUDA form may use another's: the head's products are linear's.
#pragma once
#include "kernels/cuda/grid.h"
#include "kernels/table.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

#define LOCKSTEP_DECLARE_LAUNCH(kernel, Arguments) void launch(const Arguments& op, Grid& grid);
LOCKSTEP_KERNELS(LOCKSTEP_DECLARE_LAUNCH)
#undef LOCKSTEP_DECLARE_LAUNCH

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
