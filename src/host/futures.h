// Results that are fetched later. A submitted operation gets a request id at once; its client polls that id, and the poll is held until the result is
// there or time is up. A result stays after its first delivery, since a reply can be lost, and is stored on disk where there is a store, so it
// survives a restart; beyond a limit the oldest are dropped. Knows no operation and no transport. Any thread.
//   Futures futures(deadlines, store); const std::string id = futures.create(owner, model); ... futures.resolve(id, {"application/json", "{}"});
//   futures.wait(id, owner, 30, [&](const Outcome* o) { if (o) answer(*o); });
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "host/deadlines.h"
#include "store/training_store.h"

namespace lockstep {

// The outcome of an operation: a result in its client's format, or an error.
struct Outcome {
  std::string content_type, bytes;  // content_type empty: it failed
  std::string category, message;    // category "user": the request was wrong; "server": a fault here
  bool failed() const { return content_type.empty(); }
};

// Encodes the outcome of an operation for its client.
template <class T>
using Encode = std::function<Outcome(const T&)>;

class Futures {
 public:
  // `store` may be null: then results are in memory alone. `most_bytes`: of results in memory.
  Futures(std::shared_ptr<Deadlines> deadlines, std::shared_ptr<TrainingStore> store, std::int64_t most_bytes = std::int64_t{256} << 20);
  ~Futures();
  Futures(const Futures&) = delete;
  Futures& operator=(const Futures&) = delete;

  // `scope`: the model or sampler it belongs to.
  // `told`: called once with the outcome, before the waiting polls.
  std::string create(const std::string& owner, const std::string& scope, std::function<void(const std::string& id, const Outcome&)> told = {});
  void resolve(const std::string& id, Outcome outcome);
  void fail(const std::string& id, const std::exception& error);

  // Calls back exactly once, now or later, on any thread: with the outcome, or with null after `seconds` without one. False, and no call: that owner has no
  // such request (after a restart also: it had not finished).
  bool wait(const std::string& id, const std::string& owner, double seconds, std::function<void(const Outcome*)> callback);
  // Whether it is that owner's and in memory.
  bool belongs(const std::string& id, const std::string& owner);
  // The model or sampler of a request of that owner; empty: there is none in memory.
  std::string scope_of(const std::string& id, const std::string& owner);
  // Whether an outcome is there.
  bool done(const std::string& id);
  // Deletes the stored results of that scope.
  void forget(const std::string& scope);
  // Answers all waiting polls with "not yet".
  void stop();

 private:
  struct Future {
    std::string owner, scope;
    std::shared_ptr<const Outcome> outcome;
    std::vector<std::uint64_t> waiters;
    std::function<void(const std::string&, const Outcome&)> told;
  };
  void too_late(std::uint64_t waiter);
  void write();
  void forget_oldest();

  const std::shared_ptr<Deadlines> deadlines_;
  std::shared_ptr<TrainingStore> store_;
  const std::int64_t most_bytes_;
  std::mutex mutex_;
  std::unordered_map<std::string, Future> futures_;
  std::list<std::string> finished_;  // oldest first
  std::int64_t bytes_ = 0;
  std::unordered_map<std::uint64_t, std::function<void(const Outcome*)>> waiters_;
  std::uint64_t next_waiter_ = 1;
  bool stopping_ = false;
  // Results that a thread writes to the store, so that resolve(), often called by the executor, does not wait for a disk.
  struct Unwritten {
    StoredResult result;
    bool forgets = false;  // instead of a result: delete the scope's
  };
  std::deque<Unwritten> unwritten_;
  std::condition_variable written_;
  bool closing_ = false;
  std::thread writer_;
};

// "user" for an error of the request, "server" for a fault here.
std::string failure_category(const std::exception& error);

}  // namespace lockstep
