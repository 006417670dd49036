#include "host/futures.h"

#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/server_paths.h"

namespace lockstep {

namespace {
// With what remembering one takes beside its texts.
std::int64_t bytes_held(const Outcome& outcome) { return 512 + static_cast<std::int64_t>(outcome.bytes.size() + outcome.message.size()); }
}  // namespace

std::string failure_category(const std::exception& error) {
  const auto* e = dynamic_cast<const Error*>(&error);
  if (!e) return "server";
  switch (e->code()) {
    case ErrorCode::invalid_argument:
    case ErrorCode::not_found:
    case ErrorCode::already_exists:
    case ErrorCode::unsupported:
    case ErrorCode::numeric:
    case ErrorCode::cancelled:
      return "user";
    default:
      return "server";
  }
}

Futures::Futures(std::shared_ptr<Deadlines> deadlines, std::shared_ptr<TrainingStore> store, std::int64_t most_bytes)
    : deadlines_(std::move(deadlines)), store_(std::move(store)), most_bytes_(most_bytes) {
  if (store_) writer_ = std::thread([this] { write(); });
}

Futures::~Futures() {
  stop();
  deadlines_->forget(this);
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  written_.notify_all();
  if (writer_.joinable()) writer_.join();  // all results are in the store then
}

void Futures::write() {
  constexpr std::int64_t kMostStoredBytes = std::int64_t{1} << 30;
  constexpr int kTrimEvery = 1000;
  int since_trim = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    written_.wait(lock, [this] { return closing_ || !unwritten_.empty(); });
    if (unwritten_.empty()) return;
    const Unwritten next = unwritten_.front();
    lock.unlock();
    try {
      if (next.forgets) store_->remove_results(next.result.scope);
      else store_->put_result(next.result);
      if (++since_trim >= kTrimEvery) store_->trim_results(kMostStoredBytes), since_trim = 0;
    } catch (const std::exception& e) {
      log_warning("a result could not be kept for after a restart", {{"reason", e.what()}});
    }
    lock.lock();
    unwritten_.pop_front();
    forget_oldest();
  }
}

void Futures::stop() {
  std::vector<std::function<void(const Outcome*)>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& [id, waiter] : waiters_) callbacks.push_back(std::move(waiter));
    waiters_.clear();
  }
  for (const auto& callback : callbacks) callback(nullptr);
}

void Futures::forget(const std::string& scope) {
  if (!store_) return;
  {
    const std::lock_guard lock(mutex_);
    unwritten_.push_back({{{}, {}, scope, {}, {}, {}, {}}, true});
  }
  written_.notify_one();
}

std::string Futures::create(const std::string& owner, const std::string& scope, std::function<void(const std::string&, const Outcome&)> told) {
  const std::string id = "req-" + hex64(random_bits()) + hex64(random_bits()).substr(0, 8);
  const std::lock_guard lock(mutex_);
  futures_[id] = {owner, scope, nullptr, {}, std::move(told)};
  return id;
}

void Futures::resolve(const std::string& id, Outcome outcome) {
  const auto shared = std::make_shared<const Outcome>(std::move(outcome));
  std::vector<std::function<void(const Outcome*)>> callbacks;
  std::function<void(const std::string&, const Outcome&)> told;
  {
    const std::lock_guard lock(mutex_);
    const auto found = futures_.find(id);
    if (found == futures_.end() || found->second.outcome) return;
    told.swap(found->second.told);
    found->second.outcome = shared;
    bytes_ += bytes_held(*shared);
    finished_.push_back(id);
    for (const std::uint64_t waiter : found->second.waiters)
      if (const auto w = waiters_.find(waiter); w != waiters_.end()) {
        callbacks.push_back(std::move(w->second));
        waiters_.erase(w);
      }
    found->second.waiters.clear();
    if (store_)
      unwritten_.push_back({{id, found->second.owner, found->second.scope, shared->content_type, shared->bytes, shared->category, shared->message}, false});
    else forget_oldest();
  }
  written_.notify_one();
  if (told) told(id, *shared);
  for (const auto& callback : callbacks) callback(shared.get());
}

void Futures::fail(const std::string& id, const std::exception& error) {
  constexpr std::size_t kLongestMessage = 4096;  // it may repeat what a client sent
  std::string message = dynamic_cast<const Error*>(&error) ? error.what() : "an internal error; the server's log says more";
  if (std::string told = without_server_paths(message); told != message) {
    log_warning("an operation failed", {{"reason", message}});
    message = std::move(told);
  }
  if (message.size() > kLongestMessage) message = message.substr(0, kLongestMessage) + "...";
  resolve(id, {{}, {}, failure_category(error), std::move(message)});
  if (!dynamic_cast<const Error*>(&error)) log_error("an operation failed", {{"reason", error.what()}});
}

void Futures::forget_oldest() {
  constexpr std::size_t kMostFinished = 200'000;
  // What is not in the store yet stays.
  while (finished_.size() > unwritten_.size() && (bytes_ > most_bytes_ || finished_.size() > kMostFinished)) {
    const auto found = futures_.find(finished_.front());
    if (found != futures_.end()) {
      bytes_ -= bytes_held(*found->second.outcome);
      futures_.erase(found);
    }
    finished_.pop_front();
  }
}

std::string Futures::scope_of(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = futures_.find(id);
  return found != futures_.end() && found->second.owner == owner ? found->second.scope : std::string();
}

bool Futures::wait(const std::string& id, const std::string& owner, double seconds, std::function<void(const Outcome*)> callback) {
  std::shared_ptr<const Outcome> outcome;
  {
    std::unique_lock lock(mutex_);
    const auto found = futures_.find(id);
    if (found == futures_.end()) {
      lock.unlock();
      const std::optional<StoredResult> stored = store_ ? store_->result(id) : std::nullopt;
      if (!stored || stored->owner != owner) return false;
      const Outcome kept{stored->content_type, stored->bytes, stored->category, stored->message};
      callback(&kept);
      return true;
    }
    if (found->second.owner != owner) return false;
    outcome = found->second.outcome;
    if (!outcome && !stopping_) {
      const std::uint64_t waiter = next_waiter_++;
      waiters_[waiter] = std::move(callback);
      found->second.waiters.push_back(waiter);
      lock.unlock();
      deadlines_->add(this, deadline_in(seconds), [this, waiter] { too_late(waiter); });
      return true;
    }
  }
  callback(outcome.get());
  return true;
}

bool Futures::belongs(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = futures_.find(id);
  return found != futures_.end() && found->second.owner == owner;
}

bool Futures::done(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = futures_.find(id);
  return found != futures_.end() && found->second.outcome;
}

void Futures::too_late(std::uint64_t waiter) {
  std::function<void(const Outcome*)> callback;
  {
    const std::lock_guard lock(mutex_);
    const auto found = waiters_.find(waiter);
    if (found == waiters_.end()) return;  // it has its answer
    callback = std::move(found->second);
    waiters_.erase(found);
  }
  callback(nullptr);
}

}  // namespace lockstep
