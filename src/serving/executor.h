// The executor of a device: one thread that runs step-sized pieces of work by the shares of classes and API keys (base/fair_shares.h). All calls to a
// device are made on that thread, so nothing below needs a lock. It does not know what a step does.
// Example: an engine's step and a training step are submitted for two accounts; both have work all the time, so the device's seconds go to them by
// their shares. Each piece's seconds are measured and charged to its account, or to those it names (name_piece). Within an account first come, first
// served; a step that returns true keeps its turn.
// Training steps give way: between two kernels, two parts of a long one (kernels/kernel_parts.h) or two blocks of a copy or file (base/give_way.h), live
// steps whose turn it is run on the same thread. So training holds no lock there that a live step takes. Other steps are never interrupted.
// Any thread may call any function; a step may submit, but not drain or stop. A step that throws is dropped and logged; run() hands the exception
// to its future.
//   Executor executor; executor.submit(executor.account(WorkClass::live, "ann"), [&] { return engine.step(); });
//   const float loss = executor.run(WorkClass::training, [&] { return trainer.forward_backward(data); }).get();
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/pause_point.h"
#include "observe/prometheus.h"
#include "serving/device_piece.h"

namespace lockstep {

class Executor : public PausePoint {
 public:
  using Step = std::function<bool()>;  // true: it wants to run again
  using Account = std::shared_ptr<ShareAccount>;

  explicit Executor(const ClassShares& shares = {});
  ~Executor() override;  // stop()
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // A key's account; "": the server's own work.
  Account account(WorkClass work, const std::string& key = {});
  // The weights of keys; a key without one has weight 1.
  void set_keys(std::map<std::string, double> weights);

  // Error cancelled once it is stopped.
  void submit(const Account& account, Step step);
  void submit(WorkClass work, Step step) { submit(account(work), std::move(step)); }
  // One call, with its result or exception. A future that a stop overtakes throws std::future_error (broken promise).
  template <class Whose, class F>
  auto run(const Whose& whose, F work) -> std::future<std::invoke_result_t<F&>> {
    auto task = std::make_shared<std::packaged_task<std::invoke_result_t<F&>()>>(std::move(work));
    auto result = task->get_future();
    submit(whose, [task] { return (*task)(), false; });
    return result;
  }

  // Called by the running step: names its kind for metrics (a literal), and by tokens the accounts it works for, where that is not the account it
  // was submitted for.
  void name_piece(const char* kind, std::vector<DevicePart> parts = {});

  // Device seconds of an account and of all accounts up to now; the difference of two says who had the device in between. Takes no lock.
  struct Use {
    double own = 0, all = 0, at = 0;
  };
  Use use(const ShareAccount& account) const { return {account.seconds(), used_.load(std::memory_order_relaxed), now()}; }
  // A sentence for an account whose work has waited since `before`: others had much of the device, by their shares. Empty: they had not.
  std::string why_waiting(const ShareAccount& account, const Use& before) const;

  // For the backend whose kernels the steps launch (Backend::set_pause_point).
  void pause() override;
  std::int64_t longest_kernel() const override;

  // Returns once nothing is left to do.
  void drain();
  // The running step ends, the rest is dropped; the caller's thread has the device from then on. Again: nothing else happens.
  void stop();
  // Whether the caller runs in a step, or has stopped the executor.
  bool inside() const { return std::this_thread::get_id() == device_thread_.load(std::memory_order_relaxed); }

  ExecutorState state() const;
  void append_metrics(PrometheusText& text) const;
  std::string told(const ShareAccount& account) const;  // its key, as metrics name it

 private:
  struct Queue {
    Account account;  // that the queue is of
    std::deque<Step> steps;
  };
  bool gives_way() const;
  void work();
  void run_step(ShareAccount* whose, std::unique_lock<std::mutex>& lock);
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }
  void charge(const RunningPiece& running, double seconds);
  void count(const RunningPiece& running, double seconds);
  void leave(ShareAccount* whose);

  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  const ClassShares class_shares_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  FairShares shares_;
  std::unordered_map<ShareAccount*, Queue> queues_;  // of accounts with work
  bool stopping_ = false, busy_ = false;
  std::map<std::string, PieceKind, std::less<>> kinds_;
  RunningPiece* running_ = nullptr;     // executor's thread
  std::atomic<double> used_{0};         // device seconds of all
  std::atomic<int> live_accounts_{0};   // with work
  std::atomic<double> live_until_{-1};  // live work counts as coming until then
  std::mutex join_mutex_;
  std::atomic<std::thread::id> device_thread_{};
  std::thread thread_;
};

}  // namespace lockstep
