// A stream of request ids whose results are ready, read with a cursor, so that a client can wait for many results with one request. Results are then
// fetched by id (host/futures.h). Knows no operation. Any thread.
//   FutureFeed feed(deadlines);  feed.add(owner, "s1:sample:0/0", {id, false, 812});
//   feed.wait("s1:sample:0/0", cursor, 25, [](const auto& page) { answer(page); });
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/deadlines.h"

namespace lockstep {

struct FinishedFuture {
  std::string id;
  bool failed = false;
  std::int64_t bytes = 0;  // of its result
};

struct FeedPage {
  std::vector<FinishedFuture> finished;
  std::int64_t cursor = 0;  // for the next call
};

class FutureFeed {
 public:
  // A stream keeps its newest `most` entries. Beyond `most_streams` streams the owner with the most loses its oldest; beyond `most_in_all` entries (about
  // 150 bytes each) the owner with the most loses the oldest of its longest stream. So one owner takes no room from others.
  explicit FutureFeed(std::shared_ptr<Deadlines> deadlines, std::size_t most = 100'000, std::size_t most_streams = 10'000, std::size_t most_in_all = 1'000'000);
  ~FutureFeed();
  FutureFeed(const FutureFeed&) = delete;
  FutureFeed& operator=(const FutureFeed&) = delete;

  void add(const std::string& owner, const std::string& stream, FinishedFuture finished);
  // Calls back exactly once, now or later, on any thread: with the entries after `cursor`, or with none after `seconds`. Entries up to the cursor are
  // dropped. 0 seconds: at once.
  void wait(const std::string& stream, std::int64_t cursor, double seconds, std::function<void(const FeedPage&)> callback);
  // Answers all waiting calls.
  void stop();

 private:
  struct Entry {
    std::int64_t at = 0;
    FinishedFuture finished;
  };
  struct Stream {
    std::string owner;
    std::deque<Entry> entries;
  };
  // Of one owner.
  struct Share {
    std::deque<std::string> streams;  // oldest first
    std::size_t entries = 0;
  };
  struct Waiter {
    std::string stream;
    std::int64_t cursor = 0;
    std::function<void(const FeedPage&)> callback;
  };
  Stream& stream_of(const std::string& owner, const std::string& name);
  void forget(Stream& stream, std::size_t count);  // its oldest entries
  void forget_stream();
  void forget_longest();
  FeedPage page_after(const std::string& stream, std::int64_t cursor);
  void too_late(std::uint64_t waiter);

  const std::shared_ptr<Deadlines> deadlines_;
  const std::size_t most_, most_streams_, most_in_all_;
  std::mutex mutex_;
  std::int64_t next_;  // the cursor of the next entry: it grows over all streams, and begins above those of an earlier process
  std::map<std::string, Stream> streams_;
  std::map<std::string, Share> shares_;      // what each owner holds, by owner; those without a stream are left out
  std::size_t in_all_ = 0;                   // entries of all streams
  std::map<std::uint64_t, Waiter> waiters_;  // in order of arrival
  std::uint64_t next_waiter_ = 1;
  bool stopping_ = false;
};

}  // namespace lockstep
