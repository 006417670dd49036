#include "fleet/replica_reporter.h"

#include "base/error.h"
#include "base/log.h"
#include "base/seconds.h"
#include "fleet/fleet_watch.h"

namespace lockstep {

ReplicaReporter::ReplicaReporter(std::shared_ptr<Store> store, std::string channel, ReplicaRecord first)
    : store_(std::move(store)), channel_(std::move(channel)), record_(std::move(first)), thread_([this] { work(); }) {}

void ReplicaReporter::leave() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
  if (!written_) return;  // a store that is read alone
  try {
    remove_replica(*store_, channel_, record_.name);
  } catch (const std::exception& e) {
    log_warning("this replica's record could not be removed; it will count as lost", {{"reason", e.what()}});
  }
}

void ReplicaReporter::change(const std::function<void(ReplicaRecord&)>& what) {
  const std::lock_guard lock(mutex_);
  what(record_);
  changed_ = true;
  wake_.notify_all();
}

void ReplicaReporter::enter(ReplicaStage stage, const std::function<void(ReplicaRecord&)>& what) {
  const std::lock_guard lock(mutex_);
  record_.seconds[static_cast<std::size_t>(record_.stage)] += seconds_since(entered_);
  entered_ = std::chrono::steady_clock::now();
  changed_ = changed_ || record_.stage != stage || static_cast<bool>(what);
  record_.stage = stage;
  record_.error.clear();
  if (what) what(record_);
  wake_.notify_all();
}

void ReplicaReporter::fail(const std::string& message) {
  enter(ReplicaStage::error, [&](ReplicaRecord& r) { r.error = message; });
}

ReplicaRecord ReplicaReporter::record() const {
  const std::lock_guard lock(mutex_);
  ReplicaRecord now = record_;
  now.seconds[static_cast<std::size_t>(now.stage)] += seconds_since(entered_);
  return now;
}

void ReplicaReporter::write(std::unique_lock<std::mutex>& lock) {
  ++record_.beat;
  record_.unix_milliseconds = unix_milliseconds();
  changed_ = false;
  ReplicaRecord now = record_;
  now.seconds[static_cast<std::size_t>(now.stage)] += seconds_since(entered_);
  lock.unlock();
  try {
    put_replica(*store_, channel_, now.name, replica_text(now));
    complained_ = false;
    written_ = true;
  } catch (const std::exception& e) {
    if (!std::exchange(complained_, true)) log_warning("this replica's record could not be written; it is tried again", {{"reason", e.what()}});
  }
  lock.lock();
}

void ReplicaReporter::work() {
  constexpr std::chrono::milliseconds kBeat(1000), kLeast(20);  // between two records
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    write(lock);
    wake_.wait_for(lock, kLeast, [this] { return stopping_; });
    wake_.wait_for(lock, kBeat, [this] { return stopping_ || changed_; });
  }
}

}  // namespace lockstep
