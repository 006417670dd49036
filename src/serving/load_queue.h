// Runs named jobs one at a time on its own thread, in the order in which they were first asked for. A job that is asked for again while it waits or
// runs is done once, for all callers; each caller waits until its own deadline.
//   queue.ask("v8", [&] { load("v8"); }, now + std::chrono::seconds(30), [](std::exception_ptr fault, bool late) { ... });
// Any thread. `then` is called once, on the queue's thread or in stop(), and must not block for long.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

class LoadQueue {
 public:
  using Clock = std::chrono::steady_clock;
  // fault: the work's exception, or why it was cancelled; late: `until` came first, and the work goes on.
  using Then = std::function<void(std::exception_ptr fault, bool late)>;

  ~LoadQueue() { stop(); }
  // `then` null: the caller does not wait. After stop() it is called at once.
  void ask(const std::string& name, std::function<void()> work, Clock::time_point until, Then then);
  bool asked(const std::string& name) const;  // whether it waits or runs
  // Expected seconds of a job that is asked for now, from its own earlier runs, else from any; at least 1.
  double expected_seconds(const std::string& name) const;
  // Waits for the running job; the callbacks of all others get Error cancelled. Calling it again has no effect.
  void stop();

 private:
  struct Waiter {
    Clock::time_point until;
    Then then;
  };
  struct Job {
    std::string name;
    std::function<void()> work;
    std::vector<Waiter> waiters;
  };
  void run();
  void watch();

  mutable std::mutex mutex_;  // of all below
  std::condition_variable wake_;
  std::deque<Job> jobs_;  // the first one runs
  std::map<std::string, double> took_;
  double last_took_ = 0;
  bool stopping_ = false;
  std::thread runner_, watcher_;  // begun with the first
};

}  // namespace lockstep
