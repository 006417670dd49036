#include <algorithm>
#include <vector>

#include "kernels/cuda/launch_errors.h"
#include "kernels/cuda/launcher.h"
#include "kernels/cuda/launches.h"

namespace lockstep {

namespace {
class HostScratch : public CudaScratch {
 public:
  void* take(int slot, std::size_t bytes) override {
    std::vector<std::uint64_t>& words = slots_.at(static_cast<std::size_t>(slot));
    const std::size_t count = bytes / sizeof(std::uint64_t) + 32;
    if (words.size() < count) words.resize(count);
    std::fill_n(words.begin(), count, ~std::uint64_t{0});  // junk: NaN, -1
    const auto address = (reinterpret_cast<std::uintptr_t>(words.data()) + 255) / 256 * 256;
    return reinterpret_cast<void*>(address);
  }

 private:
  std::vector<std::vector<std::uint64_t>> slots_{8};
};

class HostLauncher : public CudaLauncher {
 public:
#define LOCKSTEP_LAUNCH(kernel, Arguments) \
  void launch(const Arguments& arguments) override { cuda_host::launch(arguments, grid_); }
  LOCKSTEP_KERNELS(LOCKSTEP_LAUNCH)
#undef LOCKSTEP_LAUNCH

 private:
  HostScratch scratch_;
  cuda_host::Grid grid_{nullptr, scratch_};
};
}  // namespace

std::unique_ptr<CudaLauncher> make_host_launcher() { return std::make_unique<HostLauncher>(); }

}  // namespace lockstep
