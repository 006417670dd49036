// The CUDA row on a GPU's stream. Compiled by nvcc alone; elsewhere no_launcher.cpp takes its place.
#include <algorithm>

#include "kernels/cuda/launch_errors.h"
#include "kernels/cuda/launcher.h"
#include "kernels/cuda/launches.h"

namespace lockstep {

namespace cuda {
void check_launch(const char* what) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) fail_launch(cudaGetErrorString(status), cudaGetErrorName(status), what);
}
}  // namespace cuda

namespace {
// One allocation a slot, which grows; the old one is freed in stream order, after the work that uses it.
class DeviceScratch : public CudaScratch {
 public:
  explicit DeviceScratch(cudaStream_t stream) : stream_(stream) {}
  ~DeviceScratch() override {
    cudaStreamSynchronize(stream_);
    for (const Slot& slot : slots_) cudaFree(slot.block);
  }
  void* take(int at, std::size_t bytes) override {
    Slot& slot = slots_[at];
    if (slot.bytes >= bytes) return slot.block;
    cudaStreamSynchronize(stream_);
    cudaFree(slot.block);
    slot = {};
    const std::size_t wanted = std::max(bytes + bytes / 2, std::size_t{1} << 16);
    if (cudaMalloc(&slot.block, wanted) != cudaSuccess) {
      cudaGetLastError();
      fail_scratch(wanted);
    }
    slot.bytes = wanted;
    return slot.block;
  }

 private:
  struct Slot {
    void* block = nullptr;
    std::size_t bytes = 0;
  };
  cudaStream_t stream_;
  Slot slots_[8];
};

class DeviceLauncher : public CudaLauncher {
 public:
  explicit DeviceLauncher(void* stream) : scratch_(static_cast<cudaStream_t>(stream)), grid_(stream, scratch_) {}
#define LOCKSTEP_LAUNCH(kernel, Arguments) \
  void launch(const Arguments& arguments) override { cuda::launch(arguments, grid_); }
  LOCKSTEP_KERNELS(LOCKSTEP_LAUNCH)
#undef LOCKSTEP_LAUNCH

 private:
  DeviceScratch scratch_;
  cuda::Grid grid_;
};
}  // namespace

std::unique_ptr<CudaLauncher> make_device_launcher(void* stream) { return std::make_unique<DeviceLauncher>(stream); }

}  // namespace lockstep
