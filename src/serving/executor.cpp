#include "serving/executor.h"

#include <algorithm>

#include "base/error.h"
#include "base/give_way.h"
#include "base/give_way_everywhere.h"
#include "base/log.h"
#include "observe/trace.h"
#include "parallel/processes.h"

namespace lockstep {
namespace {
// A piece counts as at least that: one that only looks whether it can go on is not chosen over and over for having cost nothing.
constexpr double kLeastSeconds = 20e-6;
// While live work comes, parts of training's kernels have so many multiply-adds (kernels/kernel_parts.h; about 3 ms of two cores at 100 GFLOP/s each). It
// counts as coming while there is any, and for so long after.
constexpr std::int64_t kLongestKernel = std::int64_t{1} << 28;
constexpr double kLiveSeconds = 2;
// A training piece that gives way pays as it goes, so that shares hold inside of it, too; beside live work that does not go first it has so many seconds at
// least before each turn of theirs, since every change of hands costs both some of the caches.
constexpr double kSliceSeconds = 0.008;
// Work that waits is said to wait for its share once others had so much of the time.
constexpr double kMuch = 0.25;
}  // namespace

Executor::Executor(const ClassShares& shares) : class_shares_(shares), shares_(shares), thread_([this] { work(); }) {}
Executor::~Executor() { stop(); }

Executor::Account Executor::account(WorkClass work, const std::string& key) {
  const std::lock_guard lock(mutex_);
  return shares_.account(work, key);
}

void Executor::set_keys(std::map<std::string, double> weights) {
  const std::lock_guard lock(mutex_);
  shares_.set_keys(std::move(weights));
}

void Executor::submit(const Account& account, Step step) {
  const std::lock_guard lock(mutex_);
  if (stopping_) fail(ErrorCode::cancelled, "the executor has stopped and takes no work");
  Queue& queue = queues_[account.get()];
  if (!queue.account && account->work == WorkClass::live) ++live_accounts_;
  queue.account = account;
  queue.steps.push_back(std::move(step));
  shares_.arrive(*account, now());
  wake_.notify_one();
}

void Executor::name_piece(const char* kind, std::vector<DevicePart> parts) {
  if (!running_) return;
  running_->kind = kind;
  running_->parts = std::move(parts);
}

void Executor::charge(const RunningPiece& running, double seconds) {
  std::vector<FairShares::Part> parts;
  for (const DevicePart& part : running.parts) parts.push_back({part.account.get(), part.tokens});
  if (parts.empty()) parts.push_back({running.account.get(), 1});
  shares_.charge(parts, seconds, now());
  used_.store(used_.load(std::memory_order_relaxed) + seconds, std::memory_order_relaxed);
}

void Executor::count(const RunningPiece& running, double seconds) {
  PieceKind& kind = kinds_[running.kind];
  kind.longest = std::max(kind.longest, seconds);
  kind.longest_stretch = std::max(kind.longest_stretch, running.longest_stretch);
  ++kind.pieces;
}

void Executor::leave(ShareAccount* whose) {
  if (whose->work == WorkClass::live && --live_accounts_ == 0) live_until_ = now() + kLiveSeconds;
  shares_.leave(*whose);
  queues_.erase(whose);
}

void Executor::run_step(ShareAccount* whose, std::unique_lock<std::mutex>& lock) {
  Queue& queue = queues_.at(whose);  // stays where it is while others come
  RunningPiece running{.account = queue.account, .outer = running_};
  Step step = std::move(queue.steps.front());
  queue.steps.pop_front();
  lock.unlock();
  running_ = &running;
  TraceSpan span("device", running.kind);
  const double began = running.began = running.resumed = now();
  bool again = false;
  try {
    again = step();
  } catch (const std::exception& e) {
    log_error("a work item failed and was dropped", {{"reason", e.what()}});
  }
  if (!again) step = nullptr;  // what it holds goes before anybody can see the executor idle
  span.rename(running.kind);
  const double ended = now(), seconds = std::max(ended - began, kLeastSeconds);
  running.longest_stretch = std::max(running.longest_stretch, ended - running.resumed);
  running_ = running.outer;
  if (running_) running_->others += seconds;
  lock.lock();
  const double own = std::max(seconds - running.others, kLeastSeconds);
  charge(running, std::max(own - running.charged, 0.0));
  count(running, own);
  if (again) queue.steps.push_front(std::move(step));
  if (queue.steps.empty()) leave(whose);
}

void Executor::work() {
  thread_pause_point = this;
  device_thread_ = std::this_thread::get_id();
  std::unique_lock lock(mutex_);
  while (true) {
    if (!stopping_ && shares_.idle()) {
      const TraceSpan span("waiting", "waiting for work");
      wake_.wait(lock, [this] { return stopping_ || !shares_.idle(); });
    }
    if (stopping_) break;
    busy_ = true;
    run_step(gives_way_everywhere() ? std::next(queues_.begin(), static_cast<std::ptrdiff_t>(drawn_turn(queues_.size())))->first : shares_.next(now()), lock);
    busy_ = false;
    if (shares_.idle()) idle_.notify_all();
  }
  std::unordered_map<ShareAccount*, Queue> dropped;
  dropped.swap(queues_);
  for (const auto& [whose, queue] : dropped) shares_.leave(*whose);
  idle_.notify_all();
  lock.unlock();  // what the dropped items hold may call us when it goes
}

// Live steps never are inside each other: an engine has one step at a time.
void Executor::pause() {
  if (!gives_way()) return;
  RunningPiece& running = *running_;
  const double reached = now();
  running.longest_stretch = std::max(running.longest_stretch, reached - running.resumed);
  running.resumed = reached;
  if (live_accounts_.load(std::memory_order_relaxed) == 0) return;
  {
    std::unique_lock lock(mutex_);
    const double own = reached - running.began - running.others - running.charged;
    const bool by_shares = own >= kSliceSeconds;
    if (by_shares) {
      charge(running, own);
      running.charged += own;
    }
    while (!stopping_ && !gives_way_everywhere()) {
      ShareAccount* const next = shares_.next_live(by_shares ? running.account.get() : nullptr, now());
      if (!next) break;
      run_step(next, lock);
    }
    if (!stopping_ && gives_way_everywhere()) {
      std::vector<ShareAccount*> live;
      for (const auto& [whose, queue] : queues_)
        if (whose->work == WorkClass::live && !queue.steps.empty()) live.push_back(whose);
      if (!live.empty()) run_step(live[drawn_turn(live.size())], lock);
    }
  }
  running.resumed = now();
}

// Whether the running step gives way: nothing is inside a live step or a rollout's, and where other processes repeat this one's calls they make one after
// the other.
bool Executor::gives_way() const { return inside() && running_ && !running_->outer && running_->account->work == WorkClass::training && !joined_mail(); }

std::int64_t Executor::longest_kernel() const {
  if (gives_way_everywhere()) return 1;
  if (!gives_way()) return 0;
  return live_accounts_.load(std::memory_order_relaxed) > 0 || now() < live_until_.load(std::memory_order_relaxed) ? kLongestKernel : 0;
}

void Executor::drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return !busy_ && shares_.idle(); });
}

void Executor::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
  device_thread_ = std::this_thread::get_id();
}

std::string Executor::told(const ShareAccount& account) const {
  const std::lock_guard lock(mutex_);
  return shares_.told(account);
}

std::string Executor::why_waiting(const ShareAccount& account, const Use& before) const {
  const Use after = use(account);
  const double own = after.own - before.own, others = after.all - before.all - own, seconds = after.at - before.at;
  if (others < kMuch * seconds) return {};
  const std::lock_guard lock(mutex_);
  const std::string company = shares_.company(account);
  if (company.empty()) return {};
  return fmt::format("this key's {} had {:.1f} of the last {:.1f} seconds of the device, others {:.1f}: {} (--shares)", work_class_name(account.work), own,
                     seconds, others, company);
}

ExecutorState Executor::state() const {
  const std::lock_guard lock(mutex_);
  ExecutorState state{class_shares_, shares_.used(), shares_.waiting(now()), {}};
  for (const auto& [name, kind] : kinds_) state.kinds.push_back({name, kind.pieces, kind.longest, kind.longest_stretch});
  return state;
}

void Executor::append_metrics(PrometheusText& text) const {
  const ExecutorState state = this->state();
  text.family("lockstep_device_share_percent", "gauge", "What a class of work has of the device's seconds at least while it has work (--shares).");
  for (std::size_t i = 0; i < kWorkClasses; ++i)
    text.sample({{"class", work_class_name(static_cast<WorkClass>(i))}}, static_cast<double>(state.shares.percent[i]));
  text.family("lockstep_device_seconds_total", "counter",
              "Device seconds measured around pieces of work, by class and by the key's name; a shared step's by tokens.");
  for (const FairShares::Line& line : state.used) text.sample({{"class", work_class_name(line.work)}, {"key", line.key}}, line.seconds);
  text.family("lockstep_device_waiting_seconds", "gauge", "Of keys with work: for how long none of their pieces has ended, since others have their turns.");
  for (const FairShares::Line& line : state.waiting) text.sample({{"class", work_class_name(line.work)}, {"key", line.key}}, line.seconds);
  text.family("lockstep_device_pieces_total", "counter", "Pieces of work, by kind.");
  for (const PieceKind& kind : state.kinds) text.sample({{"kind", kind.name}}, static_cast<double>(kind.pieces));
  text.family(
      "lockstep_device_longest_piece_seconds", "gauge",
      "The longest piece so far, by kind, without live steps in its middle: so long other rollouts and training wait at most before the device is free.");
  for (const PieceKind& kind : state.kinds) text.sample({{"kind", kind.name}}, kind.longest);
  text.family("lockstep_device_longest_stretch_seconds", "gauge",
              "The longest part of a piece so far, by kind, between two moments at which it could give way: so long live work waits at most.");
  for (const PieceKind& kind : state.kinds) text.sample({{"kind", kind.name}}, kind.longest_stretch);
}

}  // namespace lockstep
