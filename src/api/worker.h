// One thread for work that would block a server's own: reading and thinning files, decoding long requests, compiling schemas. Its queue is bounded;
// post returns false when it is full. Knows nothing of the work, which must not throw. post: any thread.
//   Worker worker; if (!worker.post([=] { responder->send(answer()); })) responder->send(busy);
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep {

class Worker {
 public:
  static constexpr std::size_t kMostWaiting = 64;
  // `niceness`: by default the thread runs at low priority, so that watching a run does not slow it.
  explicit Worker(std::size_t most_waiting = kMostWaiting, int niceness = 10) : most_waiting_(most_waiting), niceness_(niceness), thread_([this] { run(); }) {}
  ~Worker();  // drops work that waits, and waits for work that runs
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  bool post(std::function<void()> work);

 private:
  void run();
  const std::size_t most_waiting_;
  const int niceness_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep
