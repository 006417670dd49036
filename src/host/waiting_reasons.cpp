#include "host/waiting_reasons.h"

namespace lockstep {

Executor::Account WaitingReasons::account_of(const std::string& owner, const std::string& request) const {
  const bool sample = samplers_.contains(commons_.futures.scope_of(request, owner));
  return sample ? commons_.generation->callers().account(owner, WorkClass::rollouts) : commons_.base->executor->account(WorkClass::training, owner);
}

Executor::Use WaitingReasons::device_use(const std::string& owner, const std::string& request) const {
  return commons_.base->executor->use(*account_of(owner, request));
}

std::string WaitingReasons::without_share(const std::string& owner, const std::string& request, const Executor::Use& before) const {
  return commons_.base->executor->why_waiting(*account_of(owner, request), before);
}

std::map<std::string, std::int64_t> WaitingReasons::models_waiting() const {
  std::map<std::string, std::int64_t> by_owner, by_key;
  for (const std::shared_ptr<HostedModel>& model : models_.every()) {
    if (model->in_memory) continue;
    const auto state = model->state.lock();
    if (state->activity.open > static_cast<std::int64_t>(state->waiting.size())) ++by_owner[model->owner];
  }
  for (const auto& [owner, count] : by_owner) by_key[commons_.base->executor->told(*commons_.base->executor->account(WorkClass::training, owner))] += count;
  return by_key;
}

}  // namespace lockstep
