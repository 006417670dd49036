#include "base/signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/error.h"

namespace lockstep {
namespace {
std::atomic<int> received{0};
std::atomic<std::int64_t> received_at{0};  // milliseconds
constexpr std::int64_t kOneBreath = 500;
std::atomic<bool> reload{false};
static_assert(std::atomic<int>::is_always_lock_free);  // or a handler could not touch it

extern "C" void on_interrupt(int signal) {
  const int before = errno;
  timespec clock{};
  clock_gettime(CLOCK_MONOTONIC, &clock);
  const std::int64_t now = static_cast<std::int64_t>(clock.tv_sec) * 1000 + clock.tv_nsec / 1000000;
  int none = 0;
  if (received.compare_exchange_strong(none, signal)) received_at.store(now);
  else if (signal == SIGINT || (signal == SIGTERM && now - received_at.load() >= kOneBreath)) _exit(128 + signal);
  errno = before;
}
extern "C" void on_reload(int) { reload.store(true); }
}  // namespace

void install_interrupt_handlers() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction before {};
    if (signal == SIGHUP && sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;  // nohup: the run outlives its terminal
    if (sigaction(signal, &action, nullptr) != 0) fail(ErrorCode::internal, "cannot handle signal {}", signal);
  }
}

void install_reload_handler() {
  struct sigaction action {};
  action.sa_handler = on_reload;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGHUP, &action, nullptr) != 0) fail(ErrorCode::internal, "cannot handle signal {}", SIGHUP);
}

bool take_reload() { return reload.exchange(false); }

bool interrupted() { return received.load(std::memory_order_relaxed) != 0; }
int interrupt_signal() { return received.load(std::memory_order_relaxed); }
StopToken interrupt_token() { return StopToken(std::shared_ptr<const std::atomic<int>>(std::shared_ptr<void>(), &received)); }
void throw_if_interrupted() { interrupt_token().throw_if_stopped(); }
void clear_interrupt() { received.store(0); }

}  // namespace lockstep
