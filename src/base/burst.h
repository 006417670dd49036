// A burst of work on one thread, at whose end what was put off runs once: thirty answers written in one step of an engine wake
// the thread that sends them once, not thirty times. Knows nothing of the work. Of the thread that opens it; bursts nest, and the
// outermost one ends them all.
//   const Burst burst; ... if (!Burst::put_off(this, [self] { self->wake(); })) wake();
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

  // Whether this thread is in a burst; then `call`, which must not throw, runs at its end, once for each `who`.
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
