#include "parallel/repeated_turns.h"

#include <chrono>

namespace lockstep {

void RepeatedTurns::ask(bool more) {
  {
    const std::lock_guard lock(mutex_);
    asked_ += more ? 1 : -1;
    if (more && !stopping_ && !thread_.joinable()) thread_ = std::thread([this] { repeat(); });
  }
  if (more) changed_.notify_all();
}

void RepeatedTurns::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RepeatedTurns::repeat() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || asked_ > 0; });
    if (stopping_) return;
    lock.unlock();
    turn_();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    lock.lock();
  }
}

}  // namespace lockstep
