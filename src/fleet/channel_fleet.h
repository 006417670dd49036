// A fleet that follows a channel of a store: its members are the replicas with a record in the store, and loading a snapshot moves the channel, so
// any process that reads the store can answer for all of them. A snapshot's name is a channel that points at it. Any thread.
// Other trainers may leave folders named by snapshot (deliveries): one that is loaded becomes a snapshot with a channel of its name.
//   ChannelFleet fleet(open_store("/mnt/weights"), "chat", parse_quorum("all"));   fleet.load("step-3", {});
#pragma once
#include <filesystem>
#include <mutex>
#include <set>

#include "fleet/fleet_watch.h"
#include "serving/fleet_port.h"

namespace lockstep {

// "STORE/CHANNEL", as options have it.
struct ChannelPlace {
  std::string store, channel;
};
// Error invalid_argument, naming `option`.
ChannelPlace parse_channel_place(const std::string& option, const std::string& text);

class ChannelFleet : public FleetPort {
 public:
  // `transition`: of loads that do not name one; empty: the channel's. `deliveries`: the folder of deliveries; empty: none.
  ChannelFleet(std::shared_ptr<Store> store, std::string channel, Quorum quorum, std::string transition = {}, std::filesystem::path deliveries = {});
  std::vector<FleetMember> members() override;
  FleetSignal load(const std::string& identity, const std::string& transition) override;
  bool has_delivery(const std::string& identity) override;
  void take_in(const FleetDelivery& delivery) override;
  FleetProgress progress(const FleetSignal& signal) override;
  std::string describe() const override { return store_->label() + "/" + channel_; }
  // The name by which a snapshot was loaded; its id when it has none.
  std::string identity_of(const std::string& snapshot);

 private:
  FleetState look();
  const std::shared_ptr<Store> store_;
  const std::string channel_;
  const Quorum quorum_;
  const std::string transition_;
  const std::filesystem::path deliveries_;
  std::mutex delivery_mutex_;  // one is taken in at a time
  std::mutex mutex_;
  FleetWatch watch_;
  std::map<std::string, std::string> names_;  // by id, of channels that hold one snapshot
  std::set<std::string> known_;               // names that were read
};

}  // namespace lockstep
