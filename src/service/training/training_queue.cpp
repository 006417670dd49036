#include "service/training/training_queue.h"

namespace lockstep {

void TrainingQueue::submit(const std::string& lane, Step step) {
  const std::lock_guard lock(mutex_);
  lanes_[lane].push_back(std::make_shared<Step>(std::move(step)));
  if (scheduled_) return;
  executor_->submit(WorkPriority::training, [self = shared_from_this()] { return self->run_one(); });
  scheduled_ = true;
}

void TrainingQueue::drop(const std::string& lane) {
  const std::lock_guard lock(mutex_);
  lanes_.erase(lane);
}

std::size_t TrainingQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [lane, steps] : lanes_) count += steps.size();
  return count;
}

bool TrainingQueue::run_one() {
  std::string lane;
  std::shared_ptr<Step> step;
  {
    const std::lock_guard lock(mutex_);
    auto next = lanes_.upper_bound(last_);
    if (next == lanes_.end()) next = lanes_.begin();
    if (next == lanes_.end()) return scheduled_ = false;
    lane = last_ = next->first;
    step = next->second.front();
  }
  const bool again = (*step)();
  const std::lock_guard lock(mutex_);
  if (const auto found = lanes_.find(lane); !again && found != lanes_.end() && found->second.front() == step) {
    found->second.pop_front();
    if (found->second.empty()) lanes_.erase(found);
  }
  return scheduled_ = !lanes_.empty();
}

}  // namespace lockstep
