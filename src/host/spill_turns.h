// Lets a thread of its own write weights to disk although only the executor may read them from the device. The writer reads one parameter at a time
// with run(), which the executor serves between its steps, and waits for the disk without blocking the executor. When a step of the executor needs
// the writer to finish, it calls wait(), which serves the writer's reads. Each id is written by one thread at a time. Any thread, except functions
// that take an OnExecutor.
//   if (!turns.begin(id)) return;   // another thread writes it
//   turns.run([&] { values = stream.read(view).get(); });   // then this thread writes them
//   turns.end(id);
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "serving/on_executor.h"

namespace lockstep {

class SpillTurns {
 public:
  explicit SpillTurns(std::shared_ptr<Executor> executor) : executor_(std::move(executor)) {}

  // False: another thread writes it.
  bool begin(const std::string& id);
  void end(const std::string& id);
  // Waits until it is written; live steps run meanwhile.
  void wait(const OnExecutor& on, const std::string& id);
  // Runs `reads` on the executor; called on another thread. Errors: those of `reads`; cancelled, or std::future_error, once the executor is stopped.
  void run(std::function<void()> reads);

 private:
  struct Read {
    std::packaged_task<void()> task;
    OfExecutor<bool> done;
  };
  void serve(const OnExecutor& on);

  const std::shared_ptr<Executor> executor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> written_;
  std::deque<std::weak_ptr<Read>> reads_;  // of the executor's items, which go when it stops
};

}  // namespace lockstep
