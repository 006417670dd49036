// What a thread does for one client: whether anybody still waits for it, and what memory it may take. Loops over a client's bytes ask
// now and then, however deep they stand, so that a client who leaves is not worked for. Where no scope is open nothing is asked.
// What outlives the work (a compiled grammar) keeps its part of that memory: it is counted until that goes.
//   ClientWork work(gone, memory);  ...  ClientWork::check();  ClientWork::take(bytes);  made->memory = ClientWork::keep(bytes);
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>

#include "base/error.h"

namespace lockstep {

// Memory that is counted against a limit.
class MemoryAccount {
 public:
  virtual ~MemoryAccount() = default;
  // Throws Error resource_exhausted when so much more may not be taken.
  virtual void take(std::size_t bytes) = 0;
  // So much of what was taken belongs to the result from here on, and is given back with it. Null: it is not told apart.
  virtual std::shared_ptr<void> split(std::size_t bytes) { return nullptr; }
};

class ClientWork {
 public:
  // `gone`: true when nobody waits any more; `memory`: what take() counts against. Either may be null.
  ClientWork(std::shared_ptr<const std::atomic<bool>> gone, std::shared_ptr<MemoryAccount> memory)
      : gone_(std::move(gone)), memory_(std::move(memory)), outer_(current_) {
    current_ = this;
  }
  ~ClientWork() { current_ = outer_; }
  ClientWork(const ClientWork&) = delete;
  ClientWork& operator=(const ClientWork&) = delete;

  // Throws Error cancelled when nobody waits any more.
  static void check() {
    if (current_ && current_->gone_ && current_->gone_->load(std::memory_order_relaxed)) fail(ErrorCode::cancelled, "the client has gone, or the server stops");
  }
  static void take(std::size_t bytes) {
    if (current_ && current_->memory_) current_->memory_->take(bytes);
  }
  // Null where nothing is counted.
  static std::shared_ptr<void> keep(std::size_t bytes) { return current_ && current_->memory_ ? current_->memory_->split(bytes) : nullptr; }

 private:
  const std::shared_ptr<const std::atomic<bool>> gone_;
  const std::shared_ptr<MemoryAccount> memory_;
  ClientWork* const outer_;
  static inline thread_local ClientWork* current_ = nullptr;
};

}  // namespace lockstep
