// The queue of events that callers have not been told yet: sampled tokens and ends of requests, in order. Events of a cancelled request are removed.
// Used by one thread at a time; a sequence lives until its end is taken from here.
//   Untold untold(counters); untold.add(s, token); untold.add_end(std::move(sequence)); while (!untold.empty()) report(untold.take());
#pragma once
#include <deque>
#include <memory>

#include "engine/options.h"
#include "engine/sequence.h"

namespace lockstep {

class Untold {
 public:
  // Counts sampled tokens, and the mixed ones of them.
  explicit Untold(EngineCounters& counters) : counters_(counters) {}

  struct Event {
    Sequence* sequence;
    GeneratedToken token;
    std::unique_ptr<Sequence> done;  // null: a token
  };
  // A token that the request has just sampled.
  void add(Sequence& s, const GeneratedToken& token);
  void add_end(std::unique_ptr<Sequence> s);
  // Drops up to that many of a request's last queued tokens. Returns how many; they are still in its generation.
  std::size_t forget(const Sequence& s, std::size_t most);
  // For a request that is cancelled: removes its queued tokens from its generation. False: none was queued.
  bool drop(Sequence& s);
  // Cancels a request whose end is still queued; others are ignored. If none of its tokens is queued, it ends as it did, unless it is one with guesses that
  // failed: without them the row that went wrong would not have run yet.
  void cancel(std::uint64_t id);

  bool empty() const { return events_.empty(); }
  // Removes and returns the first event.
  Event take();

 private:
  EngineCounters& counters_;
  std::deque<Event> events_;
};

}  // namespace lockstep
