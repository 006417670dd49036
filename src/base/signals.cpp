#include "base/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/error.h"

namespace lockstep {
namespace {
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);  // or a handler could not touch it

extern "C" void on_interrupt(int signal) {
  const int before = errno;
  int none = 0;
  if (!received.compare_exchange_strong(none, signal) && signal == SIGINT) _exit(128 + SIGINT);
  errno = before;
}
}  // namespace

void install_interrupt_handlers() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGINT, SIGTERM})
    if (sigaction(signal, &action, nullptr) != 0) fail(ErrorCode::internal, "cannot handle signal {}", signal);
}

bool interrupted() { return received.load(std::memory_order_relaxed) != 0; }
int interrupt_signal() { return received.load(std::memory_order_relaxed); }
void throw_if_interrupted() {
  if (!interrupted()) return;
  fail(ErrorCode::cancelled, "interrupted by {}", interrupt_signal() == SIGTERM ? "SIGTERM" : "Ctrl-C");
}
void request_interrupt() {
  int none = 0;
  received.compare_exchange_strong(none, SIGINT);
}
void clear_interrupt() { received.store(0); }

}  // namespace lockstep
