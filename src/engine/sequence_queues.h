// The sequences of an engine: those that run and those that wait, each in order of arrival. Knows no pages and no rows. Used by one thread at a time.
//   queues.add(s); queues.run(s); ... queues.wait(s); queues.remove(s);
#pragma once
#include <vector>

#include "engine/fair_order.h"

namespace lockstep {

class SequenceQueues {
 public:
  // Adds a new sequence behind all waiting ones. Sequences belong to the caller and stay until removed.
  void add(Sequence& s) { waiting_.push_back(&s); }
  void remove(Sequence& s);
  // From waiting to running, and back.
  void run(Sequence& s);
  void wait(Sequence& s);

  bool empty() const { return running_.empty() && waiting_.empty(); }
  const std::vector<Sequence*>& running() const { return running_; }
  const std::vector<Sequence*>& waiting() const { return waiting_; }
  // Those that run, and `s`, which waits.
  std::vector<Sequence*> running_with(Sequence& s) const;
  // Those that wait, in fair order beside those that run.
  std::vector<Sequence*> waiting_in_turn(Classes classes) const;

 private:
  std::vector<Sequence*> running_;
  std::vector<Sequence*> waiting_;
};

}  // namespace lockstep
