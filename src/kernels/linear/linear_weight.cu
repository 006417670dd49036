// The CUDA form of linear.h's weight gradient.
#include "kernels/linear/weight_gradient_cuda.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

void launch(const LinearBackwardWeight& op, Grid& grid) { launch_weight_gradient(op, NothingMore{}, grid); }

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
