#include "host/future_feed.h"

#include <chrono>

namespace lockstep {

FutureFeed::FutureFeed(std::shared_ptr<Deadlines> deadlines, std::size_t most, std::size_t most_streams)
    : deadlines_(std::move(deadlines)),
      most_(most),
      most_streams_(most_streams),
      next_(std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count()) {}

FutureFeed::~FutureFeed() {
  stop();
  deadlines_->forget(this);
}

FutureFeed::Stream& FutureFeed::stream_of(const std::string& name) {
  const auto [at, fresh] = streams_.try_emplace(name);
  if (fresh) {
    order_.push_back(name);
    if (order_.size() > most_streams_) {
      streams_.erase(order_.front());
      order_.pop_front();
    }
  }
  return streams_[name];
}

FeedPage FutureFeed::page_after(const std::string& name, std::int64_t cursor) {
  FeedPage page{{}, cursor};
  const auto found = streams_.find(name);
  if (found == streams_.end()) return page;
  std::deque<Entry>& entries = found->second.entries;
  while (!entries.empty() && entries.front().at <= cursor) entries.pop_front();
  for (const Entry& entry : entries) page.finished.push_back(entry.finished);
  if (!entries.empty()) page.cursor = entries.back().at;
  return page;
}

void FutureFeed::add(const std::string& name, FinishedFuture finished) {
  std::vector<std::pair<std::function<void(const FeedPage&)>, FeedPage>> told;
  {
    const std::lock_guard lock(mutex_);
    Stream& stream = stream_of(name);
    stream.entries.push_back({next_++, std::move(finished)});
    if (stream.entries.size() > most_) stream.entries.pop_front();
    for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
      if (waiter->second.stream != name) {
        ++waiter;
        continue;
      }
      told.emplace_back(std::move(waiter->second.callback), page_after(name, waiter->second.cursor));
      waiter = waiters_.erase(waiter);
    }
  }
  for (const auto& [callback, page] : told) callback(page);
}

void FutureFeed::wait(const std::string& name, std::int64_t cursor, double seconds, std::function<void(const FeedPage&)> callback) {
  FeedPage page;
  {
    std::unique_lock lock(mutex_);
    page = page_after(name, cursor);
    if (page.finished.empty() && seconds > 0 && !stopping_) {
      const std::uint64_t waiter = next_waiter_++;
      waiters_[waiter] = {name, cursor, std::move(callback)};
      lock.unlock();
      deadlines_->add(this, deadline_in(seconds), [this, waiter] { too_late(waiter); });
      return;
    }
  }
  callback(page);
}

void FutureFeed::stop() {
  std::map<std::uint64_t, Waiter> waiters;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    waiters.swap(waiters_);
  }
  for (const auto& [id, waiter] : waiters) waiter.callback({{}, waiter.cursor});
}

void FutureFeed::too_late(std::uint64_t id) {
  Waiter waiter;
  {
    const std::lock_guard lock(mutex_);
    const auto found = waiters_.find(id);
    if (found == waiters_.end()) return;  // it has its answer
    waiter = std::move(found->second);
    waiters_.erase(found);
  }
  waiter.callback({{}, waiter.cursor});
}

}  // namespace lockstep
