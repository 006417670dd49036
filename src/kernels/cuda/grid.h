// Launches kernel bodies: on a GPU's stream, or on the host executor. Bodies run in launch order.
//   grid.run(blocks, threads, AddBody{op});      grid.run(blocks, threads, DotBody{op}, shared_bytes);
// A body declares with `static constexpr bool kCooperates` whether its threads wait for each other (sync, down, from).
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/thread.h"

namespace lockstep {

// Device memory that the bodies of one kernel share. It grows and is kept; a kernel must not rely on what an earlier one left there.
class CudaScratch {
 public:
  virtual ~CudaScratch() = default;
  // At least `bytes` of memory, aligned to 256. `slot`: 0 to 7, one for each use within a kernel. Contents are undefined; valid until the next kernel
  // takes the same slot.
  virtual void* take(int slot, std::size_t bytes) = 0;
};

}  // namespace lockstep

namespace lockstep::LOCKSTEP_CUDA_SPACE {

#ifdef __CUDACC__
template <class Body>
__global__ void run_body(const Body body) {
  body(Thread());
}
// Throws internal when the launch was refused.
void check_launch(const char* what);
#endif

class Grid {
 public:
  // `stream`: a cudaStream_t; of the host executor null.
  Grid(void* stream, CudaScratch& scratch) : stream_(stream), scratch_(scratch) {}

  template <class Body>
  void run(std::int64_t blocks, int threads, const Body& body, std::size_t shared_bytes = 0) {
    if (blocks == 0) return;
#ifdef __CUDACC__
    static_assert(std::is_same_v<decltype(Body::kCooperates), const bool>);  // of the host executor alone
    constexpr std::size_t kWithoutAsking = std::size_t{48} << 10;
    if (shared_bytes > kWithoutAsking) cudaFuncSetAttribute(run_body<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    run_body<Body><<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared_bytes, static_cast<cudaStream_t>(stream_)>>>(body);
    check_launch(__PRETTY_FUNCTION__);
#else
    run_on_host(blocks, threads, shared_bytes, Body::kCooperates, [&](HostBlock& block, int index) { body(Thread(block, index)); });
#endif
  }
  // One thread for each of `count` items: body(item).
  template <class Body>
  void each(std::int64_t count, const Body& body);

  template <class T>
  T* scratch(int slot, std::int64_t count) {
    return static_cast<T*>(scratch_.take(slot, static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  void* stream_;
  CudaScratch& scratch_;
};

// Of each(): threads of a block count through items.
template <class Body>
struct EachBody {
  static constexpr bool kCooperates = false;
  Body body;
  std::int64_t count;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t item = t.block() * t.count() + t.index();
    if (item < count) body(item);
  }
};

template <class Body>
void Grid::each(std::int64_t count, const Body& body) {
  constexpr int kThreads = 256;
  run((count + kThreads - 1) / kThreads, kThreads, EachBody<Body>{body, count});
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
