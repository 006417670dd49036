#include "base/thread_pool.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/processor_nodes.h"

namespace lockstep {

// A job is a generation number and a next index in one word, so that a late thread can never combine an index of one
// job with the fields of another. The caller waits for indices, not for threads: a worker that sleeps through a small job
// costs nothing. Workers spin briefly (the jobs of one forward follow each other within microseconds), then sleep.
struct ThreadPool::State {
  static constexpr std::uint64_t kClosed = 0xffffffffu;  // as the index: nothing to take
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<std::uint64_t> next{kClosed};  // generation << 32 | index
  std::atomic<std::uint32_t> count{0}, done{0};
  std::atomic<const std::function<void(std::int64_t)>*> work{nullptr};
  std::atomic<bool> stop{false};
  std::atomic<int> sleeping{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  std::vector<std::thread> workers;
  NodePlacement* placement = nullptr;
  std::vector<int> places;  // the caller's first

  // Runs indices until the job is used up.
  void take_part() {
    for (;;) {
      std::uint64_t ticket = next.load();
      const std::uint32_t total = count.load();
      const auto* job = work.load();
      if ((ticket & kClosed) >= total) return;
      if (!next.compare_exchange_weak(ticket, ticket + 1)) continue;
      try {
        (*job)(static_cast<std::int64_t>(ticket & kClosed));
      } catch (...) {
        std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
      done.fetch_add(1, std::memory_order_release);
    }
  }

  void end() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (std::thread& one : workers) one.join();
    placement->give_back(places);
  }

  bool idle(std::uint64_t seen) const { return next.load() >> 32 == seen && !stop.load(); }

  void worker() {
    std::uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < 2000 && idle(seen); ++spin) _mm_pause();
      if (idle(seen)) {
        std::unique_lock lock(mutex);
        sleeping.fetch_add(1);
        wake.wait(lock, [&] { return !idle(seen); });
        sleeping.fetch_sub(1);
      }
      if (stop.load()) return;
      seen = next.load() >> 32;
      take_part();
    }
  }
};

// On a machine with several NUMA nodes each worker is bound to one; the caller is not bound.
ThreadPool::ThreadPool(int threads) : threads_(std::max(1, threads)), state_(std::make_unique<State>()) {
  state_->placement = &current_placement();
  state_->places = state_->placement->take(threads_);
  try {
    for (int i = 1; i < threads_; ++i)
      state_->workers.emplace_back([this, i] {
        if (!state_->places.empty()) bind_this_thread(state_->placement->processors_of(state_->places[static_cast<std::size_t>(i)]));
        state_->worker();
      });
  } catch (const std::system_error&) {  // no memory for one more stack, or too many threads
    const std::size_t begun = state_->workers.size();
    state_->end();
    fail(ErrorCode::resource_exhausted, "{} threads were wanted, the system gave {} (memory for their stacks, or a limit of threads)", threads_, begun + 1);
  }
}

ThreadPool::~ThreadPool() { state_->end(); }

void ThreadPool::run(std::int64_t count, const std::function<void(std::int64_t)>& work) {
  if (count <= 0) return;
  if (threads_ == 1 || count == 1) {
    for (std::int64_t i = 0; i < count; ++i) work(i);
    return;
  }
  State& s = *state_;
  const std::uint64_t generation = (s.next.load() >> 32) + 1;
  s.next.store(((generation - 1) << 32) | State::kClosed);  // no late thread takes from the old job while the fields change
  s.count.store(static_cast<std::uint32_t>(count));
  s.done.store(0);
  s.work.store(&work);
  s.error = nullptr;
  s.next.store((generation & 0xffffffffu) << 32);
  if (s.sleeping.load() > 0) {
    { std::lock_guard lock(s.mutex); }  // a worker between its check and its sleep has the lock
    s.wake.notify_all();
  }
  s.take_part();
  for (int spin = 0; s.done.load(std::memory_order_acquire) != static_cast<std::uint32_t>(count); ++spin) {
    if (spin < 20000) _mm_pause();
    else std::this_thread::yield();
  }
  if (s.error) std::rethrow_exception(s.error);
}

int available_processors() {
  const std::size_t usable = usable_processors().size();
  return usable > 0 ? static_cast<int>(usable) : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace lockstep
