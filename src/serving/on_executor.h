// A token that proves that the caller runs in a step of an executor (serving/executor.h), or has stopped it. Functions that must run there take it as a
// parameter, so a call from another thread does not compile. It is made where a step begins: by run_on, by serving/service_turns.h, by
// host/training_queue.h, and by the constructor; never copied or stored.
//   void rest(const OnExecutor& on, Model& model);
//   run_on(*executor, WorkClass::training, [&](const OnExecutor& on) { rest(on, model); }).get();
#pragma once
#include "base/error.h"
#include "serving/executor.h"

namespace lockstep {

class OnExecutor {
 public:
  // Error internal: the caller is no step of it.
  explicit OnExecutor(const Executor& executor) {
    if (!executor.inside()) fail(ErrorCode::internal, "work of the executor was called on another thread");
  }
  OnExecutor(const OnExecutor&) = delete;
  OnExecutor& operator=(const OnExecutor&) = delete;
};

// Executor::run with an OnExecutor passed to the call.
template <class Whose, class F>
auto run_on(Executor& executor, const Whose& whose, F work) {
  return executor.run(whose, [&executor, work = std::move(work)]() mutable {
    const OnExecutor on(executor);
    return work(on);
  });
}

// For destructors, whose buffers are freed on the device's thread: `work` is a step of the executor, and where that has stopped it runs here, since no
// other thread uses the device then.
template <class Whose, class F>
void release_on(Executor& executor, const Whose& whose, const F& work) {
  try {
    run_on(executor, whose, [&work](const OnExecutor& on) { work(on); }).get();
  } catch (const std::exception&) {
    executor.stop();
    work(OnExecutor(executor));
  }
}

// A value that only steps of the executor can access, from its construction on.
template <class T>
class OfExecutor {
 public:
  OfExecutor() = default;
  explicit OfExecutor(T value) : value_(std::move(value)) {}
  T& at(const OnExecutor&) { return value_; }
  const T& at(const OnExecutor&) const { return value_; }

 private:
  T value_{};
};

}  // namespace lockstep
