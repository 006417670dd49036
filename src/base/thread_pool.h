// A fixed set of threads that run index ranges. One caller at a time; not reentrant.
//   pool.run(rows, [&](int64_t i) { ... });
// How indices are split over threads never changes a bit, since every kernel gives each output element to exactly one index.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace lockstep {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // counts the caller; at least 1
  ~ThreadPool();
  int threads() const { return threads_; }
  // Calls work(i) once for every i in [0, count), on any thread, and returns when all are done. Indices are begun in ascending order: work(i) may
  // wait for what the work of a lower index does before anything in it can throw. An exception that leaves work is rethrown here (one of them).
  void run(std::int64_t count, const std::function<void(std::int64_t)>& work);

 private:
  struct State;
  int threads_;
  std::unique_ptr<State> state_;
};

// How many processors this process may use.
int available_processors();

}  // namespace lockstep
