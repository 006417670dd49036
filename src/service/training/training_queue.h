// Work of many models on one executor, fairly: each model has a lane, in whose order its operations run; lanes take turns, one
// step each, so that a session with huge batches delays another by one step at most. Knows no operation. Any thread.
//   queue.submit(model_id, [&] { return piece(); });   // true: it wants to run again
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "service/executor.h"

namespace lockstep {

class TrainingQueue : public std::enable_shared_from_this<TrainingQueue> {
 public:
  using Step = std::function<bool()>;

  explicit TrainingQueue(std::shared_ptr<Executor> executor) : executor_(std::move(executor)) {}
  // `step` must not throw.
  void submit(const std::string& lane, Step step);
  // What waits in a lane is dropped; what runs ends its step.
  void drop(const std::string& lane);
  std::size_t waiting() const;

 private:
  bool run_one();

  std::shared_ptr<Executor> executor_;
  mutable std::mutex mutex_;
  std::map<std::string, std::deque<std::shared_ptr<Step>>> lanes_;  // those with work
  std::string last_;                                                // the lane whose turn it was
  bool scheduled_ = false;
};

}  // namespace lockstep
