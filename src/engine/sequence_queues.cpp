#include "engine/sequence_queues.h"

#include <algorithm>
#include <iterator>

namespace lockstep {

namespace {
void put_by_arrival(std::vector<Sequence*>& queue, Sequence& s) {
  queue.insert(std::find_if(queue.begin(), queue.end(), [&](const Sequence* other) { return other->id > s.id; }), &s);
}

void take_out(std::vector<Sequence*>& queue, Sequence& s) { queue.erase(std::find(queue.begin(), queue.end(), &s)); }
}  // namespace

void SequenceQueues::remove(Sequence& s) {
  take_out(s.running ? running_ : waiting_, s);
  s.running = false;
}

void SequenceQueues::run(Sequence& s) {
  take_out(waiting_, s);
  put_by_arrival(running_, s);
  s.running = true;
}

void SequenceQueues::wait(Sequence& s) {
  take_out(running_, s);
  put_by_arrival(waiting_, s);
  s.running = false;
}

std::vector<Sequence*> SequenceQueues::running_with(Sequence& s) const {
  std::vector<Sequence*> all = running_;
  put_by_arrival(all, s);
  return all;
}

std::vector<Sequence*> SequenceQueues::waiting_in_turn(Classes classes) const {
  std::vector<Sequence*> all;
  std::merge(running_.begin(), running_.end(), waiting_.begin(), waiting_.end(), std::back_inserter(all),
             [](const Sequence* a, const Sequence* b) { return a->id < b->id; });
  if (!of_several_accounts(all)) return waiting_;
  std::vector<Sequence*> order;
  for (const Ranked& one : fair_order(all, Ties::by_time, classes))
    if (!one.sequence->running) order.push_back(one.sequence);
  return order;
}

}  // namespace lockstep
