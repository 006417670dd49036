#include "host/spill_turns.h"

#include <chrono>

#include "base/give_way.h"

namespace lockstep {

bool SpillTurns::begin(const std::string& id) {
  const std::lock_guard lock(mutex_);
  return written_.insert(id).second;
}

void SpillTurns::end(const std::string& id) {
  const std::lock_guard lock(mutex_);
  written_.erase(id);
  changed_.notify_all();
}

void SpillTurns::wait(const OnExecutor& on, const std::string& id) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (!written_.contains(id)) return;
      if (reads_.empty()) changed_.wait_for(lock, std::chrono::milliseconds(1));  // live work comes unannounced
    }
    serve(on);
    give_way();
  }
}

void SpillTurns::serve(const OnExecutor& on) {
  std::deque<std::weak_ptr<Read>> reads;
  {
    const std::lock_guard lock(mutex_);
    reads.swap(reads_);
  }
  for (const std::weak_ptr<Read>& one : reads)
    if (const std::shared_ptr<Read> read = one.lock(); read && !std::exchange(read->done.at(on), true)) read->task();
}

void SpillTurns::run(std::function<void()> reads) {
  auto read = std::make_shared<Read>();
  read->task = std::packaged_task<void()>(std::move(reads));
  std::future<void> result = read->task.get_future();
  {
    const std::lock_guard lock(mutex_);
    reads_.push_back(read);
    changed_.notify_all();
  }
  executor_->submit(WorkClass::training, [executor = executor_.get(), read = std::move(read)] {
    executor->name_piece("weights");
    if (!std::exchange(read->done.at(OnExecutor(*executor)), true)) read->task();
    return false;
  });
  result.get();
}

}  // namespace lockstep
