// Whose weights are being written to disk, each by one thread at a time. A thread beside the executor's waits for the disk there, while the executor
// reads one parameter after another for it; a step of the executor that needs such a thread to be done reads for it meanwhile. Any thread, but where a
// function takes the executor's proof.
//   if (!turns.begin(id)) return;   // another is at it
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

  // False: another writes it.
  bool begin(const std::string& id);
  void end(const std::string& id);
  // Until nobody writes it; live steps run meanwhile.
  void wait(const OnExecutor& on, const std::string& id);
  // Runs `reads` on the executor. Another thread than that one. Errors: its own; cancelled, or std::future_error, once the executor is stopped.
  void run(std::function<void()> reads);

 private:
  struct Read {
    std::packaged_task<void()> task;
    bool done = false;  // the executor's
  };
  void serve(const OnExecutor& on);

  const std::shared_ptr<Executor> executor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> written_;
  std::deque<std::weak_ptr<Read>> reads_;  // of the executor's items, which go when it stops
};

}  // namespace lockstep
