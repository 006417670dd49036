#include "host/deadlines.h"

namespace lockstep {

Deadlines::Deadlines() : thread_([this] { watch(); }) {}

Deadlines::~Deadlines() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Deadlines::add(const void* owner, Clock::time_point until, std::function<void()> call) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    const auto added = entries_.emplace(until, Entry{owner, std::move(call)});
    first = added == entries_.begin();  // in a statement of its own: of two operands of ==, the right one may come first
  }
  if (first) changed_.notify_all();
}

void Deadlines::forget(const void* owner) {
  std::unique_lock lock(mutex_);
  std::erase_if(entries_, [owner](const auto& entry) { return entry.second.owner == owner; });
  called_.wait(lock, [&] { return calling_ != owner; });
}

void Deadlines::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (entries_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = entries_.begin();
    if (const Clock::time_point until = first->first; Clock::now() < until) {
      changed_.wait_until(lock, until);
      continue;
    }
    {
      const Entry entry = std::move(first->second);
      entries_.erase(first);
      calling_ = entry.owner;
      lock.unlock();
      entry.call();
    }  // what it holds is gone, too, before its owner is told
    lock.lock();
    calling_ = nullptr;
    called_.notify_all();
  }
}

}  // namespace lockstep
