// The wish that long work ends soon, as a value that is handed to it: the work looks at its token between steps, saves and ends. Whoever may
// end it holds the source; Ctrl-C and SIGTERM have a token too (base/signals.h). Any thread.
//   StopSource source; const StopToken stop = source.token(); while (!stop.stopped()) step();  // elsewhere: source.stop();
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
