// In a build without CUDA: the device cuda is refused before anything asks for a launcher (tensor/cuda_stream.h).
#include "base/error.h"
#include "kernels/cuda/launcher.h"

#ifndef LOCKSTEP_CUDA
namespace lockstep {
std::unique_ptr<CudaLauncher> make_device_launcher(void*) { fail(ErrorCode::unsupported, "this build has no CUDA"); }
}  // namespace lockstep
#endif
