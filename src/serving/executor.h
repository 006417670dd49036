// The executor of a device: one thread that runs step-sized pieces of work, by the shares of classes and keys (base/fair_shares.h). Whoever
// talks to a device does it in here, so nothing below needs a lock. Knows nothing of what a step does.
// A piece's device seconds are measured around it, and charged to the account it was submitted for, or to those that it names; of a piece that gives way
// they are charged while it runs. Of one account: first come, first served; an item keeps its turn until a step returns false.
// A training step gives way: between two of its kernels, or two parts of a long one (kernels/kernel_parts.h), or two blocks that it copies, reads or writes
// (base/give_way.h), live steps run whose turn it is, on the same thread. Other steps end before anything else begins. So training holds no lock there
// that a live step takes.
// Any thread may call any function; a step may submit, and must not drain or stop. A step that throws is dropped and logged:
// whoever wants the exception uses run().
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

#include "base/fair_shares.h"
#include "base/pause_point.h"
#include "observe/prometheus.h"

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
  // Keys that are known by name, with their weights.
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

  // Of the running step: what kind of piece it is, for metrics (a literal), and for whom it worked, by tokens, where not for the account it
  // was submitted for.
  struct Part {
    Account account;
    double tokens = 0;
  };
  void tell(const char* kind, std::vector<Part> parts = {});

  // Device seconds of an account, and of all, until a moment: two of them say who had the device between. No lock.
  struct Use {
    double own = 0, all = 0, at = 0;
  };
  Use use(const ShareAccount& account) const { return {account.seconds(), used_.load(std::memory_order_relaxed), now()}; }
  // Why an account's work is not done since `before`, in words: others had much of the device, by their shares. Empty: that is not why.
  std::string why_waiting(const ShareAccount& account, const Use& before) const;

  // Of a backend whose kernels the steps launch: Backend::set_pause_point.
  void pause() override;
  std::int64_t longest_kernel() const override;

  // Returns once nothing is left to do.
  void drain();
  // The running step ends, the rest is dropped. Again: nothing happens.
  void stop();
  // Whether the caller is a step.
  bool inside() const { return std::this_thread::get_id() == thread_.get_id(); }

  // Device seconds by class and key, who waits for the device and why, the longest piece by kind.
  struct KindLine {
    std::string name;
    std::uint64_t pieces = 0;
    double longest = 0;          // seconds; without those of live steps in its middle
    double longest_stretch = 0;  // between two moments at which it could give way
  };
  struct State {
    ClassShares shares;
    std::vector<FairShares::Line> used, waiting;
    std::vector<KindLine> kinds;
  };
  State state() const;
  void append_metrics(PrometheusText& text) const;
  std::string told(const ShareAccount& account) const;  // its key, as metrics have it

 private:
  struct Queue {
    Account account;  // that the queue is of
    std::deque<Step> steps;
  };
  struct Kind {
    double longest = 0, longest_stretch = 0;
    std::uint64_t pieces = 0;
  };
  struct Running {
    Account account;
    const char* kind = "other";
    std::vector<Part> parts;
    double began = 0;
    double others = 0;   // seconds of live steps that ran meanwhile
    double charged = 0;  // of its own
    double resumed = 0, longest_stretch = 0;
    Running* outer = nullptr;  // the step that gave way to this one
  };
  bool gives_way() const;
  void work();
  void run_step(ShareAccount* whose, std::unique_lock<std::mutex>& lock);
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }
  void charge(const Running& running, double seconds);
  void count(const Running& running, double seconds);
  void leave(ShareAccount* whose);

  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  const ClassShares class_shares_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  FairShares shares_;
  std::unordered_map<ShareAccount*, Queue> queues_;  // of accounts with work
  bool stopping_ = false, busy_ = false;
  std::map<std::string, Kind, std::less<>> kinds_;
  Running* running_ = nullptr;          // executor's thread
  std::atomic<double> used_{0};         // device seconds of all
  std::atomic<int> live_accounts_{0};   // with work
  std::atomic<double> live_until_{-1};  // until then live work counts as about
  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace lockstep
