// The executor of a device: one thread that runs step-sized pieces of work, the most urgent first. Whoever talks to a
// device does it in here, so nothing below needs a lock. Knows nothing of what a step does.
// Order: a lower WorkPriority goes first; within one, first come, first served: an item keeps its turn until a step returns
// false. A more urgent item waits for the running step alone.
// Any thread may call any function; a step may submit, and must not drain or stop. A step that throws is dropped and logged:
// whoever wants the exception uses run().
//   Executor executor; executor.submit(WorkPriority::live, [&] { return engine.step(); });
//   const float loss = executor.run(WorkPriority::training, [&] { return trainer.forward_backward(data); }).get();
#pragma once
#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>

namespace lockstep {

enum class WorkPriority { live, rollouts, training };
inline constexpr int kWorkPriorities = 3;

class Executor {
 public:
  using Step = std::function<bool()>;  // true: it wants to run again

  Executor();
  ~Executor();  // stop()
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Error cancelled once it is stopped.
  void submit(WorkPriority priority, Step step);
  // One call, with its result or exception. A future that a stop overtakes throws std::future_error (broken promise).
  template <class F>
  auto run(WorkPriority priority, F work) -> std::future<std::invoke_result_t<F&>> {
    auto task = std::make_shared<std::packaged_task<std::invoke_result_t<F&>()>>(std::move(work));
    auto result = task->get_future();
    submit(priority, [task] { return (*task)(), false; });
    return result;
  }

  // Returns once nothing is left to do.
  void drain();
  // The running step ends, the rest is dropped. Again: nothing happens.
  void stop();
  // Whether the caller is a step.
  bool inside() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void work();
  std::deque<Step>* most_urgent();

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::array<std::deque<Step>, kWorkPriorities> queues_;
  bool stopping_ = false, running_ = false;
  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace lockstep
