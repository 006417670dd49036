// The deployments that clients make on a fleet, in the store of its channel, so that any replica answers for all and a replica that is started anew has
// them. A deployment is a record of the kind "deployments", named "CHANNEL~SHA256" by its owner and name. Of two replicas that change one at the same
// time the last one stands. Any thread.
//   ChannelDeployments deployments(open_store("/mnt/weights"), "chat");   deployments.find("ann", "accounts/local/deployments/d");
#pragma once
#include <memory>
#include <mutex>

#include "serving/hosted_deployment.h"
#include "sync/store.h"

namespace lockstep {

class ChannelDeployments : public HostedDeployments {
 public:
  ChannelDeployments(std::shared_ptr<Store> store, std::string channel, std::int64_t key_share = 50);
  // Errors, of all: those of the store. A damaged record is none.
  std::optional<Deployment> find(const std::string& owner, const std::string& name) override;
  std::vector<Deployment> all(const std::string& owner) override;
  void remove(const std::string& owner, const std::string& name) override;

 protected:
  // Error invalid_argument: it is larger than a record.
  std::optional<Deployment> changed(const std::string& owner, const std::string& name, const Change& change, bool makes) override;

 private:
  std::string record_of(const std::string& owner, const std::string& name) const;
  std::vector<std::string> records() const;  // of the channel
  std::optional<Deployment> read(const std::string& record) const;
  const std::shared_ptr<Store> store_;
  const std::string channel_;
  const std::int64_t key_share_;
  std::mutex mutex_;  // of changes by this process
};

}  // namespace lockstep
