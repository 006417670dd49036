// Runs CUDA kernel bodies on the CPU for tests: blocks one after another, the threads of a block as fibers, shuffles and barriers emulated.
// It checks indexing, sums and synchronisation without a GPU, and finds faults that a GPU shows only sometimes: waiting for a thread that has ended,
// or writing just beyond the requested shared memory, is an error (reads there give junk). The order of blocks and of threads can be reversed, which
// must not change a bit.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace lockstep::cuda_host {

// What the threads of the running block share.
class HostBlock {
 public:
  virtual ~HostBlock() = default;
  virtual int threads() const = 0;
  virtual std::int64_t block() const = 0;
  virtual std::int64_t blocks() const = 0;
  virtual void sync(int thread) = 0;
  // Publishes `word` and returns that of thread `source`, once all 16 threads of the group have called it.
  virtual std::uint64_t exchange(int thread, std::uint64_t word, int source) = 0;
  virtual unsigned char* shared(std::size_t byte_offset) = 0;
};

enum class HostOrder { ascending, descending };

// Sets the order of blocks and threads in this process from now on; for tests. It begins as ascending.
void set_host_order(HostOrder order);

// Runs body(block, thread index) for every thread of every block. `cooperates`: whether threads wait for each other; if not, no fibers
// are made. threads is 1 to 1024. Throws internal on a deadlock, and what a body throws.
void run_on_host(std::int64_t blocks, int threads, std::size_t shared_bytes, bool cooperates, const std::function<void(HostBlock&, int)>& body);

}  // namespace lockstep::cuda_host
