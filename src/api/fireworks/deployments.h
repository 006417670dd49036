// Deployments as the Fireworks SDK sees them: names under which snapshots of trained models are sampled, changed while they are
// sampled (hot load). Each serves exactly the weights of one sampler checkpoint, or the base. Owners do not see each other's.
// In memory: after a restart a client makes its deployment again. Any thread.
//   Deployments deployments; deployments.hot_load(owner, "accounts/a/deployments/d", identity, weights);
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "service/training/trained_model.h"

namespace lockstep {

struct Deployment {
  std::string name, base_model, trainer_job;
  std::string identity;          // of the snapshot that is served; empty: the base
  std::string failed, failure;   // the identity that could not be loaded last, and why
  SamplerWeights weights;        // null: the base's
};

class Deployments {
 public:
  // Makes it where there is none.
  Deployment at(const std::string& owner, const std::string& name);
  std::optional<Deployment> find(const std::string& owner, const std::string& name) const;
  void change(const std::string& owner, const std::string& name, const std::function<void(Deployment&)>& change);
  bool remove(const std::string& owner, const std::string& name);

 private:
  static constexpr std::size_t kMostDeployments = 1024;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Deployment> deployments_;
};

}  // namespace lockstep
