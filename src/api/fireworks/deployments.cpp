#include "api/fireworks/deployments.h"

#include "base/error.h"

namespace lockstep {

Deployment Deployments::at(const std::string& owner, const std::string& name) {
  Deployment out;
  change(owner, name, [&](Deployment& d) { out = d; });
  return out;
}

std::optional<Deployment> Deployments::find(const std::string& owner, const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = deployments_.find({owner, name});
  return found == deployments_.end() ? std::nullopt : std::optional(found->second);
}

void Deployments::change(const std::string& owner, const std::string& name, const std::function<void(Deployment&)>& change) {
  const std::lock_guard lock(mutex_);
  if (!deployments_.contains({owner, name}) && deployments_.size() >= kMostDeployments)
    fail(ErrorCode::resource_exhausted, "there are {} deployments, allowed are {}", deployments_.size(), kMostDeployments);
  Deployment& deployment = deployments_[{owner, name}];
  deployment.name = name;
  change(deployment);
}

bool Deployments::remove(const std::string& owner, const std::string& name) {
  const std::lock_guard lock(mutex_);
  return deployments_.erase({owner, name}) > 0;
}

}  // namespace lockstep
