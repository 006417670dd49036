// Runs named jobs one at a time on its own thread, in the order in which they were first asked for. A job that is asked for again while it waits or
// runs is done once, for all callers; each caller waits until its own deadline.
//   queue.ask("v8", [&] { load("v8"); }, now + 30s, [](std::exception_ptr fault, bool late) { ... });
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
  // fault: what the work threw, or why it is not done any more; late: `until` came first, and the work goes on.
  using Then = std::function<void(std::exception_ptr fault, bool late)>;

  ~LoadQueue() { stop(); }
  // `then` null: nobody waits. After stop() it is told at once.
  void ask(const std::string& name, std::function<void()> work, Clock::time_point until, Then then);
  bool asked(const std::string& name) const;  // it waits or runs
  // About how long one that is asked for now will take, by what it, or else any, took before. Seconds, at least 1.
  double expected_seconds(const std::string& name) const;
  // What runs ends; who waits is told, with Error cancelled. Again: nothing happens.
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
