#include "engine/stage_rows.h"

#include <utility>

namespace lockstep {

namespace {
// Sends `to` to the other end of a pair, or fills `from` from there; none of either: nothing.
void send_over(Communicator& pair, Stream& stream, const View& to, const View& from) {
  if (to.size() == 0 && from.size() == 0) return;
  std::vector<View> sent(2), received(2);
  const auto other = static_cast<std::size_t>(1 - pair.rank());
  sent[other] = to;
  received[other] = from;
  pair.exchange(stream, sent, received);
}
}  // namespace

StageRows::StageRows(Backend& backend, const Sharding* sharding, const Batch& batch, std::int64_t hidden)
    : backend_(backend), sharding_(sharding), batch_(batch), hidden_(hidden) {
  if (computes() && !leads()) input_.rows = backend.device().allocate(DType::f32, batch.count(), hidden, MemoryCategory::activations);
}

void StageRows::receive(const View& flags, const View& experts) {
  if (leads() || !computes()) return;
  for (const View& into : {input_.rows.view(), flags, experts}) send_over(*sharding_->place().before, backend_.stream(), {}, into);
}

Tensor StageRows::pass_on(Tensor hidden, const View& flags, const View& experts) {
  if (!staged() || sharding_->stages() == 1) return hidden;
  const bool last = computes() && sharding_->last_stage();
  if (computes() && !last)
    for (const View& own : {hidden.view(), flags, experts}) send_over(*sharding_->place().after, backend_.stream(), own, {});
  Tensor all;
  if (leads()) all = of_rows(batch_, backend_.device().allocate(DType::f32, batch_.count(), hidden_, MemoryCategory::activations));
  from_last_to_first(last ? hidden.view() : View{}, leads() ? all.view() : View{});
  from_last_to_first(last ? flags : View{}, leads() ? flags : View{});
  from_last_to_first(last ? experts : View{}, leads() ? experts : View{});
  return all;
}

// All stages call together, also those that have nothing to do with it.
void StageRows::from_last_to_first(const View& mine, const View& into) {
  Communicator& stages = *sharding_->place().stages;
  std::vector<View> to(static_cast<std::size_t>(stages.size())), from(to.size());
  if (mine.size() > 0) to[0] = mine;
  if (into.size() > 0) from[static_cast<std::size_t>(sharding_->stages() - 1)] = into;
  stages.exchange(backend_.stream(), to, from);
}

}  // namespace lockstep
