// GPU memory for reuse, and one CUDA stream with copies to and from the host. Plain C++ over the CUDA runtime, which is linked in where the
// build found a GPU and nvcc, or was told to (LOCKSTEP_CUDA); elsewhere the constructors throw and say so.
// Knows no kernel. Work runs in stream order; a freed block is reused in that order too.
//   if (built_with_cuda()) { const CudaDeviceInfo gpu = cuda_device(); CudaStream stream; use(gpu.name); }
#pragma once
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tensor/memory_pool.h"
#include "tensor/view.h"

namespace lockstep {

struct CudaDeviceInfo {
  std::string name;             // "NVIDIA H200"
  int major = 0, minor = 0;     // compute capability
  std::size_t memory = 0;       // bytes
  int driver = 0, runtime = 0;  // 13000 for 13.0
};

// Device 0 of this process (CUDA_VISIBLE_DEVICES chooses). Throws unsupported with the reason where there is none: no CUDA in this build,
// no driver, no GPU, one older than compute capability 8.0.
CudaDeviceInfo cuda_device();
bool built_with_cuda();

class CudaStream {
 public:
  CudaStream();  // throws as cuda_device()
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void* handle() const { return stream_; }  // a cudaStream_t
  // size() elements of the view without gaps, to and from host memory. The host's may go away when upload returns; download returns
  // when all earlier work is done and the values are there. Errors of earlier work are thrown here (internal).
  void upload(const View& to, const void* elements);
  void download(void* elements, const View& from);
  void copy(const View& to, const View& from);  // both on GPUs of this process
  void fill_zero(const View& view);
  void synchronize();
  // Whether all earlier work is done; its errors are thrown here too. And where a view of GPU memory lies, for a library that moves it itself.
  bool finished();
  static void* place_of(const View& view);

 private:
  void* stream_ = nullptr;
};

// Blocks of GPU memory by size class; freed blocks are cached until the system runs out of memory. Thread-safe.
class CudaMemoryPool : public BlockPool {
 public:
  ~CudaMemoryPool() override;
  void* take(std::size_t bytes) override;
  void give(void* block, std::size_t bytes) noexcept override;

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;  // with room for all that were made
  std::map<std::size_t, std::size_t> made_;
};

}  // namespace lockstep
