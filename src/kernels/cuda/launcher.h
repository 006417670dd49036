// The CUDA row of the kernel table: one launch() for each kernel's arguments, on a GPU's stream or on the host executor.
#pragma once
#include <memory>

#include "kernels/table.h"

namespace lockstep {

class CudaLauncher {
 public:
  virtual ~CudaLauncher() = default;
#define LOCKSTEP_LAUNCH(kernel, Arguments) virtual void launch(const Arguments&) = 0;
  LOCKSTEP_KERNELS(LOCKSTEP_LAUNCH)
#undef LOCKSTEP_LAUNCH
};

// Runs bodies on the CPU (host_executor.h), synchronously on the caller's thread.
std::unique_ptr<CudaLauncher> make_host_launcher();
// On a GPU: `stream` is a cudaStream_t that outlives the launcher. Throws unsupported in a build without CUDA.
std::unique_ptr<CudaLauncher> make_device_launcher(void* stream);

}  // namespace lockstep
