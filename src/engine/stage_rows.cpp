#include "engine/stage_rows.h"

#include "parallel/transfer.h"

namespace lockstep {

StageRows::StageRows(Backend& backend, const Sharding* sharding, const Batch& batch, std::int64_t hidden)
    : backend_(backend), sharding_(sharding), batch_(batch), hidden_(hidden) {
  if (computes() && !leads()) input_.rows = backend.device().allocate(DType::f32, batch.count(), hidden, MemoryCategory::activations);
}

void StageRows::receive(const View& flags, const View& experts) {
  if (leads() || !computes()) return;
  for (const View& into : {input_.rows.view(), flags, experts}) swap_over(*sharding_->place().before, backend_.stream(), {}, into);
}

bool StageRows::send_on(const View& hidden, const View& flags, const View& experts) {
  if (!staged() || !computes() || sharding_->last_stage()) return false;
  for (const View& own : {hidden, flags, experts}) swap_over(*sharding_->place().after, backend_.stream(), own, {});
  return true;
}

Tensor StageRows::bring_back(const Tensor& hidden, const View& flags, const View& experts) {
  if (!staged() || sharding_->stages() == 1) return hidden;
  const bool last = computes() && sharding_->last_stage();
  Tensor all;
  if (leads()) all = of_rows(batch_, backend_.device().allocate(DType::f32, batch_.count(), hidden_, MemoryCategory::activations));
  from_last_to_first(last ? hidden.view() : View{}, leads() ? all.view() : View{});
  from_last_to_first(last ? flags : View{}, leads() ? flags : View{});
  from_last_to_first(last ? experts : View{}, leads() ? experts : View{});
  return all;
}

// All stages call together, also those that have nothing to do with it.
void StageRows::from_last_to_first(const View& mine, const View& into) {
  send_between(*sharding_->place().stages, backend_.stream(), sharding_->stages() - 1, 0, mine, into);
}

}  // namespace lockstep
