// Writes a replica's record to the store: at once when it changes, and once a second, so that others see it is alive. When the store cannot be
// written it goes on and tries with the next record. Any thread.
//   ReplicaReporter reporter(store, "chat", {.name = "a-8000"});   reporter.change([](ReplicaRecord& r) { r.target = id; });   reporter.enter(stage);
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "sync/replica_record.h"
#include "sync/store.h"

namespace lockstep {

class ReplicaReporter {
 public:
  ReplicaReporter(std::shared_ptr<Store> store, std::string channel, ReplicaRecord first);
  ~ReplicaReporter() { leave(); }
  ReplicaReporter(const ReplicaReporter&) = delete;
  ReplicaReporter& operator=(const ReplicaReporter&) = delete;

  void change(const std::function<void(ReplicaRecord&)>& what);
  // Enters a stage; the seconds until now count for the previous one. `what` changes other fields in the same record. Clears the record's error.
  void enter(ReplicaStage stage, const std::function<void(ReplicaRecord&)>& what = {});
  void fail(const std::string& message);  // enters the stage `error` with its message
  ReplicaRecord record() const;
  // Stops writing and removes the record: this replica has left. Further calls do nothing. Call it only on the thread that destroys this.
  void leave();

 private:
  void work();
  void write(std::unique_lock<std::mutex>& lock);
  const std::shared_ptr<Store> store_;
  const std::string channel_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  ReplicaRecord record_;
  std::chrono::steady_clock::time_point entered_ = std::chrono::steady_clock::now();
  bool changed_ = true, stopping_ = false, complained_ = false, written_ = false;
  std::thread thread_;
};

}  // namespace lockstep
