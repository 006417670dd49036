// One thread of a block as a kernel body sees it.
//   struct AddBody { Add op; LOCKSTEP_DEVICE void operator()(const Thread& t) const {...} };
// The same body is compiled twice (src/kernels/folder.cmake): by nvcc for GPUs, in lockstep::cuda, and by the C++ compiler for the host executor,
// in lockstep::cuda_host (host_executor.h), where tests run it without a GPU.
// Sixteen neighbouring threads are a group: lane i of a group holds what lane i of a CPU's f32x16 holds, so that dot16 and
// its tree have the CPU's order. No atomics, no order that depends on the grid.
#pragma once
#include <cstdint>

#include "base/device_code.h"

#ifdef __CUDACC__
#define LOCKSTEP_CUDA_SPACE cuda
#define LOCKSTEP_DEVICE __device__ inline
#else
#define LOCKSTEP_CUDA_SPACE cuda_host
#define LOCKSTEP_DEVICE inline
#include "kernels/cuda/host_executor.h"
#endif

namespace lockstep::LOCKSTEP_CUDA_SPACE {

inline constexpr int kLanes = 16;

#ifdef __CUDACC__
class Thread {
 public:
  __device__ int index() const { return static_cast<int>(threadIdx.x); }
  __device__ int count() const { return static_cast<int>(blockDim.x); }
  __device__ std::int64_t block() const { return blockIdx.x; }
  __device__ std::int64_t blocks() const { return gridDim.x; }
  __device__ int lane() const { return index() % kLanes; }
  __device__ int group() const { return index() / kLanes; }
  // All threads of the block wait for each other; what they wrote before is seen after.
  __device__ void sync() const { __syncthreads(); }
  // The value of lane + distance of the group (its own beyond the end), or of one lane. All 16 threads call it.
  template <class T>
  __device__ T down(T x, int distance) const {
    return __shfl_down_sync(mask(), x, distance, kLanes);
  }
  template <class T>
  __device__ T from(T x, int lane) const {
    return __shfl_sync(mask(), x, lane, kLanes);
  }
  // The block's own memory, as many bytes as the launch asked for, 16-byte aligned; junk at the beginning.
  template <class T>
  __device__ T* shared(std::size_t byte_offset = 0) const {
    extern __shared__ __align__(16) unsigned char lockstep_shared_memory[];
    return reinterpret_cast<T*>(lockstep_shared_memory + byte_offset);
  }

 private:
  __device__ unsigned mask() const { return 0xffffu << (threadIdx.x & 16u); }
};
#else
class Thread {
 public:
  Thread(HostBlock& block, int index) : block_(block), index_(index) {}
  int index() const { return index_; }
  int count() const { return block_.threads(); }
  std::int64_t block() const { return block_.block(); }
  std::int64_t blocks() const { return block_.blocks(); }
  int lane() const { return index_ % kLanes; }
  int group() const { return index_ / kLanes; }
  void sync() const { block_.sync(index_); }
  template <class T>
  T down(T x, int distance) const {
    return exchange(x, lane() + distance < kLanes ? index_ + distance : index_);
  }
  template <class T>
  T from(T x, int lane) const {
    return exchange(x, index_ / kLanes * kLanes + lane);
  }
  template <class T>
  T* shared(std::size_t byte_offset = 0) const {
    return reinterpret_cast<T*>(block_.shared(byte_offset));
  }

 private:
  template <class T>
  T exchange(T x, int source) const {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    std::uint64_t word = 0;
    __builtin_memcpy(&word, &x, sizeof x);
    word = block_.exchange(index_, word, source);
    __builtin_memcpy(&x, &word, sizeof x);
    return x;
  }
  HostBlock& block_;
  int index_;
};
#endif

// The tree of dot16 over the group's lanes: i and i + 8, then + 4, + 2, + 1. All 16 threads call it and get the sum.
LOCKSTEP_DEVICE float tree_sum(const Thread& t, float x) {
  for (int half = 8; half >= 1; half /= 2) x = x + t.down(x, half);
  return t.from(x, 0);
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
