// The scope of a thread's work for one client: whether the client is still connected, and how much memory the work may use. Loops over a client's
// bytes call check() now and then, at any depth, which throws when the client is gone. Without an open scope nothing is checked. A result that
// outlives the work (a compiled grammar) stays charged until it is destroyed.
//   ClientWork work(gone, memory);  ...  ClientWork::check();  ClientWork::take(bytes);  made->memory = ClientWork::hold(bytes);
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>

#include "base/error.h"

namespace lockstep {

// A memory account with a limit.
class MemoryAccount {
 public:
  virtual ~MemoryAccount() = default;
  // Throws Error resource_exhausted when the limit would be exceeded.
  virtual void take(std::size_t bytes) = 0;
  // Moves `bytes` of the taken bytes to a holder that releases them when it is destroyed. Null: they are not accounted separately.
  virtual std::shared_ptr<void> split(std::size_t bytes) { return nullptr; }
};

class ClientWork {
 public:
  // `gone` returns true when the client has disconnected; `memory` is what take() charges. Either may be null.
  ClientWork(std::shared_ptr<const std::atomic<bool>> gone, std::shared_ptr<MemoryAccount> memory)
      : gone_(std::move(gone)), memory_(std::move(memory)), outer_(current_) {
    current_ = this;
  }
  ~ClientWork() { current_ = outer_; }
  ClientWork(const ClientWork&) = delete;
  ClientWork& operator=(const ClientWork&) = delete;

  // Throws Error cancelled when the client has disconnected.
  static void check() {
    if (current_ && current_->gone_ && current_->gone_->load(std::memory_order_relaxed)) fail(ErrorCode::cancelled, "the client has gone, or the server stops");
  }
  static void take(std::size_t bytes) {
    if (current_ && current_->memory_) current_->memory_->take(bytes);
  }
  // A holder of `bytes` of what was taken (MemoryAccount::split), for results that outlive the work; null where nothing is counted.
  static std::shared_ptr<void> hold(std::size_t bytes) { return current_ && current_->memory_ ? current_->memory_->split(bytes) : nullptr; }

 private:
  const std::shared_ptr<const std::atomic<bool>> gone_;
  const std::shared_ptr<MemoryAccount> memory_;
  ClientWork* const outer_;
  static inline thread_local ClientWork* current_ = nullptr;
};

}  // namespace lockstep
