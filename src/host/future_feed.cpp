#include "host/future_feed.h"

#include <algorithm>
#include <chrono>

namespace lockstep {

FutureFeed::FutureFeed(std::shared_ptr<Deadlines> deadlines, std::size_t most, std::size_t most_streams, std::size_t most_in_all)
    : deadlines_(std::move(deadlines)),
      most_(most),
      most_streams_(most_streams),
      most_in_all_(most_in_all),
      next_(std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count()) {}

FutureFeed::~FutureFeed() {
  stop();
  deadlines_->forget(this);
}

FutureFeed::Stream& FutureFeed::stream_of(const std::string& owner, const std::string& name) {
  const auto found = streams_.find(name);
  if (found != streams_.end()) return found->second;
  if (streams_.size() >= most_streams_) forget_stream();
  shares_[owner].streams.push_back(name);
  return streams_.emplace(name, Stream{owner, {}}).first->second;
}

void FutureFeed::forget(Stream& stream, std::size_t count) {
  stream.entries.erase(stream.entries.begin(), stream.entries.begin() + static_cast<std::ptrdiff_t>(count));
  shares_[stream.owner].entries -= count;
  in_all_ -= count;
}

void FutureFeed::forget_stream() {
  const auto most =
      std::max_element(shares_.begin(), shares_.end(), [](const auto& a, const auto& b) { return a.second.streams.size() < b.second.streams.size(); });
  if (most == shares_.end()) return;
  const auto oldest = streams_.find(most->second.streams.front());
  forget(oldest->second, oldest->second.entries.size());
  streams_.erase(oldest);
  most->second.streams.pop_front();
  if (most->second.streams.empty()) shares_.erase(most);
}

// A sixteenth of it at once, so that the search for it is paid once for many entries.
void FutureFeed::forget_longest() {
  const auto most = std::max_element(shares_.begin(), shares_.end(), [](const auto& a, const auto& b) { return a.second.entries < b.second.entries; });
  Stream* longest = nullptr;
  for (const std::string& name : most->second.streams) {
    Stream& one = streams_.at(name);
    if (longest == nullptr || one.entries.size() > longest->entries.size()) longest = &one;
  }
  forget(*longest, std::max<std::size_t>(1, longest->entries.size() / 16));
}

FeedPage FutureFeed::page_after(const std::string& name, std::int64_t cursor) {
  FeedPage page{{}, cursor};
  const auto found = streams_.find(name);
  if (found == streams_.end()) return page;
  std::deque<Entry>& entries = found->second.entries;
  while (!entries.empty() && entries.front().at <= cursor) forget(found->second, 1);
  for (const Entry& entry : entries) page.finished.push_back(entry.finished);
  if (!entries.empty()) page.cursor = entries.back().at;
  return page;
}

void FutureFeed::add(const std::string& owner, const std::string& name, FinishedFuture finished) {
  std::vector<std::pair<std::function<void(const FeedPage&)>, FeedPage>> told;
  {
    const std::lock_guard lock(mutex_);
    Stream& stream = stream_of(owner, name);
    stream.entries.push_back({next_++, std::move(finished)});
    ++shares_[stream.owner].entries;
    ++in_all_;
    if (stream.entries.size() > most_) forget(stream, 1);
    if (in_all_ > most_in_all_) forget_longest();
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
