// What a thread does for one client: whether anybody still waits for it, and what memory it may take. Loops over a client's bytes ask
// now and then, however deep they stand, so that a client who leaves is not worked for. Where no scope is open nothing is asked.
//   ClientWork work(gone, memory);  ...  ClientWork::check();  ClientWork::take(bytes);
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

 private:
  const std::shared_ptr<const std::atomic<bool>> gone_;
  const std::shared_ptr<MemoryAccount> memory_;
  ClientWork* const outer_;
  static inline thread_local ClientWork* current_ = nullptr;
};

}  // namespace lockstep
