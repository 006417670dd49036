// Option rows and parts of servers and runs that follow or publish a channel of a store (src/fleet/). One thread.
//   FollowSettings follow; add_follow_options(table, follow, publish);
//   const auto follower = start_follower(follow, service, followed, fleet, url, 8080, gate);
#pragma once
#include "cli/options.h"
#include "fleet/channel_fleet.h"
#include "fleet/follower.h"
#include "jobs/rl_publishing.h"
#include "serving/hosted_deployment.h"
#include "serving/loading.h"

namespace lockstep {

struct FollowSettings {
  std::string place;  // STORE/CHANNEL; empty: it follows none
  std::string swap_memory = "double", in_flight = "continue", quorum = "all", replica, downloads, hot_load_folder;
  bool follows() const { return !place.empty(); }
};

// --follow, --swap-memory, --in-flight, --quorum, --replica, --downloads, --hot-load-folder.
void add_follow_options(OptionTable& table, FollowSettings& settings, const PublishSettings& publish);
// --publish, --publish-transition.
void add_publish_options(OptionTable& table, PublishSettings& settings, const std::string& help);
// UsageError for a text that is not STORE/CHANNEL, and for values that do not go together.
void check_publish(const PublishSettings& settings);
void check_follow(const FollowSettings& settings, bool training);

// The parts of a served model that a follower needs.
struct Followed {
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<Executor> executor;
  std::shared_ptr<const WeightSet> weights;
  std::shared_ptr<const ModelReader> reader;
  std::shared_ptr<WeightPool::Part> part = nullptr;  // its part of weights in a pool, which other models may share
};
// The name of a replica that was given none: machine and port.
std::string replica_name(std::int64_t port);
std::shared_ptr<ChannelFleet> open_fleet(const FollowSettings& settings);
// What clients deploy on a server without a trainer: of a follower in its channel's store, else in the folder `state`; empty: as long as the server.
// `key_share`: the part of their limit that one API key may have, in percent.
std::shared_ptr<HostedDeployments> open_hosted_deployments(const FollowSettings& settings, const std::filesystem::path& state, std::int64_t key_share);
std::unique_ptr<Follower> start_follower(const FollowSettings& settings, std::shared_ptr<GenerationService> service, const Followed& followed,
                                         const std::shared_ptr<ChannelFleet>& fleet, const std::string& url, std::int64_t port,
                                         std::shared_ptr<VersionGate> gate);

}  // namespace lockstep
