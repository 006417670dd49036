// A stop request as a value: long work checks its token between steps, saves and ends. Any thread.
//   StopSource source; const StopToken stop = source.token(); while (!stop.stopped()) step();  // elsewhere: source.stop();
// Whoever may stop the work holds the source; Ctrl-C and SIGTERM have a token too (base/signals.h).
#pragma once
#include <atomic>
#include <memory>

namespace lockstep {

class StopToken {
 public:
  StopToken() = default;  // never stopped
  explicit StopToken(std::shared_ptr<const std::atomic<int>> reason) : reason_(std::move(reason)) {}
  bool stopped() const { return reason_ && reason_->load(std::memory_order_relaxed) != 0; }
  // Error cancelled, when stopped.
  void throw_if_stopped() const;

 private:
  std::shared_ptr<const std::atomic<int>> reason_;  // 0: not stopped; a signal, or kAsked
};

class StopSource {
 public:
  StopToken token() const { return StopToken(reason_); }
  void stop();

 private:
  std::shared_ptr<std::atomic<int>> reason_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace lockstep
