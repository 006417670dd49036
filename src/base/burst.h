// Defers work to the end of a burst on the same thread, once for each target: thirty answers written in one engine step wake the sending
// thread once, not thirty times.
//   const Burst burst; if (!Burst::put_off(self.get(), [self] { self->wake(); })) self->wake();
// Bursts nest; deferred calls run when the outermost ends. Belongs to the thread that opened it.
#pragma once
#include <functional>
#include <utility>
#include <vector>

namespace lockstep {

class Burst {
 public:
  Burst() { ++depth(); }
  ~Burst() {
    if (--depth() > 0) return;
    const auto all = std::exchange(waiting(), {});
    for (const auto& [who, call] : all) call();
  }
  Burst(const Burst&) = delete;
  Burst& operator=(const Burst&) = delete;

  // True when this thread is in a burst; `call`, which must not throw, then runs at its end, once for each `who`.
  static bool put_off(const void* who, std::function<void()> call) {
    if (depth() == 0) return false;
    for (const auto& one : waiting())
      if (one.first == who) return true;
    waiting().emplace_back(who, std::move(call));
    return true;
  }

 private:
  static int& depth() {
    static thread_local int value = 0;
    return value;
  }
  static std::vector<std::pair<const void*, std::function<void()>>>& waiting() {
    static thread_local std::vector<std::pair<const void*, std::function<void()>>> calls;
    return calls;
  }
};

}  // namespace lockstep
