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
  // A token that the request has just said.
  void add(Sequence& s, const GeneratedToken& token);
  void add_end(std::unique_ptr<Sequence> s);
  // Of a request's tokens the last ones, at most so many, are never told. Returns how many; they still stand in what it has said.
  std::size_t forget(const Sequence& s, std::size_t most);
  // For one that ends: what was not told is not said. False: everything was told.
  bool drop(Sequence& s);
  // Of a request that has come to its end, which nobody was told yet; others are ignored. Where all its tokens were told it ends as it did.
  void cancel(std::uint64_t id);

  bool empty() const { return events_.empty(); }
  // The first one, which is told now.
  Event take();

 private:
  EngineCounters& counters_;
  std::deque<Event> events_;
};

}  // namespace lockstep
