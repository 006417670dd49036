#include "base/stop_token.h"

#include <signal.h>

#include "base/error.h"

namespace lockstep {

constexpr int kAsked = -1;  // no signal

void StopSource::stop() { reason_->store(kAsked); }

void StopToken::throw_if_stopped() const {
  const int reason = reason_ ? reason_->load() : 0;
  if (reason == 0) return;
  if (reason == kAsked) fail(ErrorCode::cancelled, "stopped");
  fail(ErrorCode::cancelled, "interrupted by {}", reason == SIGTERM ? "SIGTERM" : reason == SIGHUP ? "SIGHUP" : reason == SIGUSR1 ? "SIGUSR1" : "Ctrl-C");
}

}  // namespace lockstep
