#include "serving/executor.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace lockstep {

Executor::Executor() : thread_([this] { work(); }) {}
Executor::~Executor() { stop(); }

void Executor::submit(WorkPriority priority, Step step) {
  const std::lock_guard lock(mutex_);
  if (stopping_) fail(ErrorCode::cancelled, "the executor has stopped and takes no work");
  queues_[static_cast<std::size_t>(priority)].push_back(std::move(step));
  wake_.notify_one();
}

std::deque<Executor::Step>* Executor::most_urgent() {
  const auto it = std::find_if(queues_.begin(), queues_.end(), [](const auto& queue) { return !queue.empty(); });
  return it == queues_.end() ? nullptr : &*it;
}

void Executor::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || most_urgent() != nullptr; });
    if (stopping_) break;
    std::deque<Step>& queue = *most_urgent();
    Step step = std::move(queue.front());
    queue.pop_front();
    running_ = true;
    lock.unlock();
    bool again = false;
    try {
      again = step();
    } catch (const std::exception& e) {
      log_error("a work item failed and was dropped", {{"reason", e.what()}});
    }
    if (!again) step = nullptr;  // what it holds goes before anybody can see the executor idle
    lock.lock();
    running_ = false;
    if (again) queue.push_front(std::move(step));
    if (most_urgent() == nullptr) idle_.notify_all();
  }
  std::array<std::deque<Step>, kWorkPriorities> dropped;
  dropped.swap(queues_);
  idle_.notify_all();
  lock.unlock();  // what the dropped items hold may call us when it goes
}

void Executor::drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return !running_ && most_urgent() == nullptr; });
}

void Executor::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

}  // namespace lockstep
