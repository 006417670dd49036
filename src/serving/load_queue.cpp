#include "serving/load_queue.h"

#include <algorithm>

#include "base/error.h"
#include "base/seconds.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostRemembered = 1024;

std::exception_ptr stopped_fault() { return std::make_exception_ptr(Error(ErrorCode::cancelled, "the server stops")); }
}  // namespace

void LoadQueue::ask(const std::string& name, std::function<void()> work, Clock::time_point until, Then then) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      auto job = std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& one) { return one.name == name; });
      if (job == jobs_.end()) {
        jobs_.push_back({name, std::move(work), {}});
        job = std::prev(jobs_.end());
      }
      if (then) job->waiters.push_back({until, std::move(then)});
      if (!runner_.joinable()) {
        runner_ = std::thread([this] { run(); });
        watcher_ = std::thread([this] { watch(); });
      }
      wake_.notify_all();
      return;
    }
  }
  if (then) then(stopped_fault(), false);
}

bool LoadQueue::asked(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const Job& one) { return one.name == name; });
}

double LoadQueue::expected_seconds(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto took = [&](const std::string& one) {
    const auto found = took_.find(one);
    return found == took_.end() ? last_took_ : found->second;
  };
  double seconds = 0;
  for (const Job& job : jobs_) {
    seconds += took(job.name);
    if (job.name == name) return std::max(1.0, seconds);
  }
  return std::max(1.0, seconds + took(name));
}

void LoadQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const auto began = Clock::now();
    const std::string name = jobs_.front().name;
    const std::function<void()> work = std::move(jobs_.front().work);
    lock.unlock();
    std::exception_ptr fault;
    try {
      work();
    } catch (...) {
      fault = std::current_exception();
    }
    lock.lock();
    if (took_.size() > kMostRemembered) took_.clear();
    if (!fault) took_[name] = last_took_ = seconds_since(began);
    const std::vector<Waiter> waiters = std::move(jobs_.front().waiters);
    jobs_.pop_front();
    lock.unlock();
    for (const Waiter& one : waiters) one.then(fault, false);
    lock.lock();
  }
}

void LoadQueue::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto now = Clock::now();
    auto next = Clock::time_point::max();
    std::vector<Waiter> late;
    for (Job& job : jobs_)
      std::erase_if(job.waiters, [&](Waiter& one) {
        const bool is_late = one.until <= now;
        if (is_late) late.push_back(std::move(one));
        else next = std::min(next, one.until);
        return is_late;
      });
    if (!late.empty()) {
      lock.unlock();
      for (const Waiter& one : late) one.then(nullptr, true);
      lock.lock();
    } else if (next == Clock::time_point::max()) {
      wake_.wait(lock);
    } else {
      wake_.wait_until(lock, next);
    }
  }
}

void LoadQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (runner_.joinable()) runner_.join();
  if (watcher_.joinable()) watcher_.join();
  std::deque<Job> left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(jobs_);
  }
  for (const Job& job : left)
    for (const Waiter& one : job.waiters) one.then(stopped_fault(), false);
}

}  // namespace lockstep
