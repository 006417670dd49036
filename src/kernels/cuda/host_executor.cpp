#include "kernels/cuda/host_executor.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <atomic>
#include <exception>
#include <memory>
#include <vector>

#include "base/error.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace lockstep::cuda_host {

namespace {
constexpr std::size_t kStack = std::size_t{64} << 10;
constexpr int kGroup = 16, kMostThreads = 1024;
std::atomic<HostOrder> host_order{HostOrder::ascending};

// A barrier among some of the block's threads: the last one to come lets the others on.
struct Barrier {
  int waiting = 0;
  std::uint64_t round = 0;
};

// A suspended context and its stack: AddressSanitizer must be notified of every switch.
struct Place {
  jmp_buf jump;
  void* frames = nullptr;  // AddressSanitizer's record of the stack frames there
  const void* stack = nullptr;
  std::size_t bytes = 0;
};
void leave([[maybe_unused]] Place& from, [[maybe_unused]] const Place& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.frames, to.stack, to.bytes);
#endif
}
// Called on the stack that was switched to; writes to `from` the bounds of the stack that was left.
void arrive([[maybe_unused]] Place& at, [[maybe_unused]] Place& from) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(at.frames, &from.stack, &from.bytes);
#endif
}

// Fibers of the calling thread, one per thread of a block. They live from block to block and from launch to launch: a fiber that is done with
// a body waits for the next, since making one asks the kernel twice, and fresh memory for its stack costs more than most bodies.
// Switching is setjmp and longjmp: ucontext alone would ask the kernel at every switch.
class Fibers {
 public:
  struct Fiber {
    Place place;
    bool lives = false;           // it has a place to go on from
    bool done = false;            // with the body of this block
    const Barrier* at = nullptr;  // the barrier it waits at, and the round of it
    std::uint64_t round = 0;
  };

  ~Fibers() {
    if (memory_) munmap(memory_, kBytes);
  }
  Fiber& operator[](int thread) { return fibers_[static_cast<std::size_t>(thread)]; }
  unsigned char* stack(int thread) {
    if (!memory_) {
      void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) fail(ErrorCode::resource_exhausted, "{} bytes for the stacks of {} threads could not be had", kBytes, kMostThreads);
      memory_ = static_cast<unsigned char*>(memory);
    }
    return memory_ + kStack * static_cast<std::size_t>(thread);
  }

 private:
  static constexpr std::size_t kBytes = kStack * static_cast<std::size_t>(kMostThreads);
  std::vector<Fiber> fibers_{static_cast<std::size_t>(kMostThreads)};
  unsigned char* memory_ = nullptr;
};
thread_local Fibers fibers;

class FiberBlock;
thread_local FiberBlock* running = nullptr;  // what the fibers of this thread work for

// One block after another.
class FiberBlock : public HostBlock {
 public:
  FiberBlock(std::int64_t blocks, int threads, std::size_t shared_bytes, const std::function<void(HostBlock&, int)>& body)
      : body_(body),
        blocks_(blocks),
        threads_(threads),
        shared_bytes_(shared_bytes),
        shared_(shared_bytes + kGuard),
        words_(2 * threads),
        groups_((threads + kGroup - 1) / kGroup) {}

  void run(std::int64_t block, bool cooperates, bool descending) {
    block_ = block;
    std::fill(shared_.begin(), shared_.end(), kJunk);
    cooperates_ = cooperates;
    if (cooperates) run_fibers(descending);
    else
      for (int i = 0; i < threads_; ++i) body_(*this, descending ? threads_ - 1 - i : i);
    for (std::size_t i = shared_bytes_; i < shared_.size(); ++i)
      if (shared_[i] != kJunk) fail(ErrorCode::internal, "block {} wrote beyond its {} bytes of shared memory", block, shared_bytes_);
  }

  int threads() const override { return threads_; }
  std::int64_t block() const override { return block_; }
  std::int64_t blocks() const override { return blocks_; }
  unsigned char* shared(std::size_t byte_offset) override {
    if (byte_offset > shared_bytes_) fail(ErrorCode::internal, "shared memory at {}, allowed is up to {}", byte_offset, shared_bytes_);
    return shared_.data() + byte_offset;
  }
  void sync(int thread) override {
    check_cooperation();
    wait(all_, threads_, thread);
  }
  std::uint64_t exchange(int thread, std::uint64_t word, int source) override {
    check_cooperation();
    const int first = thread / kGroup * kGroup, members = std::min(kGroup, threads_ - first);
    if (source < first || source >= first + members)
      fail(ErrorCode::internal, "a shuffle reads thread {}, whose group has {} threads from {} on", source, members, first);
    // Two words per thread, used alternately: no thread publishes a value two rounds ahead before all have arrived at the next, and so read this one.
    Barrier& group = groups_[thread / kGroup];
    const std::size_t turn = group.round % 2 * static_cast<std::size_t>(threads_);
    words_[turn + thread] = word;
    wait(group, members, thread);
    return words_[turn + source];
  }

 private:
  static constexpr unsigned char kJunk = 0xff;  // NaN as floats, -1 as integers
  static constexpr std::size_t kGuard = 64;

  void check_cooperation() const {
    if (!cooperates_) fail(ErrorCode::internal, "a body without kCooperates waits for other threads");
  }

  void wait(Barrier& barrier, int members, int thread) {
    Fibers::Fiber& own = fibers[thread];
    if (++barrier.waiting == members) {
      barrier.waiting = 0;
      ++barrier.round;
      return;
    }
    own.at = &barrier;
    own.round = barrier.round;
    give_way(own);
    own.at = nullptr;
  }

  bool ready(const Fibers::Fiber& fiber) const { return !fiber.done && (!fiber.at || fiber.at->round != fiber.round); }

  void run_fibers(bool descending) {
    for (int i = 0; i < threads_; ++i) fibers[i].done = false, fibers[i].at = nullptr;
    all_ = {};
    std::fill(groups_.begin(), groups_.end(), Barrier{});
    error_ = nullptr;
    ended_ = 0;
    running = this;
    while (ended_ < threads_) {
      int moved = 0;
      for (int i = 0; i < threads_; ++i) {
        const int thread = descending ? threads_ - 1 - i : i;
        if (!ready(fibers[thread])) continue;
        ++moved;
        resume(thread);
        if (error_) {
          forget_fibers();
          std::rethrow_exception(error_);
        }
      }
      if (moved > 0) continue;
      forget_fibers();
      fail(ErrorCode::internal, "block {}: {} of {} threads have ended and the others wait for them", block_, ended_, threads_);
    }
  }

  // Fibers in the middle of a body that will not be finished: their stacks are reset.
  void forget_fibers() {
    for (int i = 0; i < threads_; ++i) fibers[i].lives = false;
  }

  void resume(int thread) {
    Fibers::Fiber& fiber = fibers[thread];
    current_ = thread;
    if (_setjmp(scheduler_.jump) != 0) return arrive(scheduler_, fibers[current_].place);
    if (fiber.lives) {
      leave(scheduler_, fiber.place);
      _longjmp(fiber.place.jump, 1);
    }
    fiber.lives = true;
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = fibers.stack(thread);
    start.uc_stack.ss_size = kStack;
    fiber.place.stack = start.uc_stack.ss_sp;
    fiber.place.bytes = kStack;
    fiber.place.frames = nullptr;
    start.uc_link = nullptr;
    makecontext(&start, &FiberBlock::live, 0);
    leave(scheduler_, fiber.place);
    setcontext(&start);
  }

  // Suspends the fiber until it is resumed, perhaps by another block.
  static void give_way(Fibers::Fiber& own) {
    if (_setjmp(own.place.jump) == 0) {
      leave(own.place, running->scheduler_);
      _longjmp(running->scheduler_.jump, 1);
    }
    arrive(own.place, running->scheduler_);
  }

  // A fiber's life: the body of one block after another.
  static void live() {
    const int thread = running->current_;
    Fibers::Fiber& own = fibers[thread];
    arrive(own.place, running->scheduler_);
    for (;;) {
      run_body(thread);
      own.done = true;
      ++running->ended_;
      give_way(own);
    }
  }
  // Not inlined into live(), which must hold no local variable that a longjmp could invalidate.
  [[gnu::noinline]] static void run_body(int thread) {
    try {
      running->body_(*running, thread);
    } catch (...) {
      running->error_ = std::current_exception();
    }
  }

  const std::function<void(HostBlock&, int)>& body_;
  std::int64_t block_ = 0, blocks_;
  int threads_, current_ = 0, ended_ = 0;
  bool cooperates_ = false;
  std::size_t shared_bytes_;
  std::vector<unsigned char> shared_;
  std::vector<std::uint64_t> words_;
  Barrier all_;
  std::vector<Barrier> groups_;
  Place scheduler_;
  std::exception_ptr error_;
};
}  // namespace

void set_host_order(HostOrder order) { host_order = order; }

void run_on_host(std::int64_t blocks, int threads, std::size_t shared_bytes, bool cooperates, const std::function<void(HostBlock&, int)>& body) {
  if (threads < 1 || threads > kMostThreads) fail(ErrorCode::internal, "{} threads a block, allowed are 1 to {}", threads, kMostThreads);
  const bool descending = host_order == HostOrder::descending;
  FiberBlock fibers(blocks, threads, shared_bytes, body);
  for (std::int64_t b = 0; b < blocks; ++b) fibers.run(descending ? blocks - 1 - b : b, cooperates, descending);
}

}  // namespace lockstep::cuda_host
