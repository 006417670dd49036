#include "service/training/future_feed.h"

#include <algorithm>

namespace lockstep {

FutureFeed::FutureFeed(std::size_t most, std::size_t most_streams)
    : most_(most),
      most_streams_(most_streams),
      next_(std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count()),
      thread_([this] { watch(); }) {}

FutureFeed::~FutureFeed() {
  stop();
  thread_.join();
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
      if (waiter->stream != name) {
        ++waiter;
        continue;
      }
      told.emplace_back(std::move(waiter->callback), page_after(name, waiter->cursor));
      waiter = waiters_.erase(waiter);
    }
  }
  for (const auto& [callback, page] : told) callback(page);
}

void FutureFeed::wait(const std::string& name, std::int64_t cursor, double seconds, std::function<void(const FeedPage&)> callback) {
  FeedPage page;
  {
    const std::lock_guard lock(mutex_);
    page = page_after(name, cursor);
    if (page.finished.empty() && seconds > 0 && !stopping_) {
      const auto until = FeedClock::now() + std::chrono::duration_cast<FeedClock::duration>(std::chrono::duration<double>(seconds));
      waiters_.push_back({name, cursor, until, std::move(callback)});
      changed_.notify_all();
      return;
    }
  }
  callback(page);
}

void FutureFeed::stop() {
  std::list<Waiter> waiters;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    waiters.swap(waiters_);
  }
  changed_.notify_all();
  for (const Waiter& waiter : waiters) waiter.callback({{}, waiter.cursor});
}

void FutureFeed::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto first = std::min_element(waiters_.begin(), waiters_.end(), [](const Waiter& a, const Waiter& b) { return a.until < b.until; });
    if (first == waiters_.end()) {
      changed_.wait(lock);
      continue;
    }
    if (FeedClock::now() < first->until) {
      changed_.wait_until(lock, FeedClock::time_point(first->until));
      continue;
    }
    const Waiter late = std::move(*first);
    waiters_.erase(first);
    lock.unlock();
    late.callback({{}, late.cursor});
    lock.lock();
  }
}

}  // namespace lockstep
