#include "base/thread_pool.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {

// A job is published under a generation number; workers spin for a moment (jobs of one forward follow each other
// within microseconds), then sleep.
struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<std::uint64_t> generation{0};
  std::atomic<int> busy{0};
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> next{0};
  std::int64_t count = 0;
  const std::function<void(std::int64_t)>* work = nullptr;
  std::exception_ptr error;
  std::mutex error_mutex;
  std::vector<std::thread> workers;

  void take_part() {
    try {
      for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) (*work)(i);
    } catch (...) {
      std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      next.store(count, std::memory_order_relaxed);
    }
  }

  void worker() {
    std::uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < 4000 && generation.load(std::memory_order_acquire) == seen; ++spin) _mm_pause();
      if (generation.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen; });
      }
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      take_part();
      busy.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(int threads) : threads_(std::max(1, threads)), state_(std::make_unique<State>()) {
  for (int i = 1; i < threads_; ++i) state_->workers.emplace_back([this] { state_->worker(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->generation.fetch_add(1, std::memory_order_release);
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::run(std::int64_t count, const std::function<void(std::int64_t)>& work) {
  if (count <= 0) return;
  if (threads_ == 1 || count == 1) {
    for (std::int64_t i = 0; i < count; ++i) work(i);
    return;
  }
  State& s = *state_;
  s.count = count;
  s.work = &work;
  s.error = nullptr;
  s.next.store(0, std::memory_order_relaxed);
  s.busy.store(threads_ - 1, std::memory_order_relaxed);
  {
    std::lock_guard lock(s.mutex);
    s.generation.fetch_add(1, std::memory_order_release);
  }
  s.wake.notify_all();
  s.take_part();
  for (int spin = 0; s.busy.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < 20000) _mm_pause();
    else std::this_thread::yield();
  }
  if (s.error) std::rethrow_exception(s.error);
}

int available_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace lockstep
