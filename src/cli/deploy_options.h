// Option rows of a server with several models (serving/deployments.h), and their values as sources and rules. One thread.
//   DeploySettings deploy; add_deploy_options(table, deploy, training, has_keys);   std::vector<DeploySource> sources = deploy_sources(deploy);
#pragma once
#include <functional>

#include "cli/options.h"
#include "serving/traffic.h"

namespace lockstep {

struct DeploySettings {
  std::vector<std::string> deploy, follow, route, gates, administrators;
  std::string folder, state;
  double scale_to_zero_minutes = 0, cold_start_seconds = 0;  // 0 minutes: models never sleep; 0 seconds: requests do not wait for one to wake
};
// --deploy, --deploy-follow, --route, --route-gate, --deploy-folder, --deploy-state, --scale-to-zero-minutes, --cold-start-seconds, --admin.
// `training`, `has_keys`: whether the server trains, and has API keys.
void add_deploy_options(OptionTable& table, DeploySettings& settings, const std::function<bool()>& training, const std::function<bool()>& has_keys);

struct DeploySource {
  std::string name, source;
  bool follows = false;  // it takes each later snapshot of its channel
};
// The values of --deploy and --deploy-follow. UsageError for a text that is not NAME=SOURCE, and for a --deploy-follow whose source is no channel.
std::vector<DeploySource> deploy_sources(const DeploySettings& settings);
// The rules of --route, each with its --route-gate. UsageError for a text that is not ALIAS=NAME:WEIGHT,.., and for a gate without a route; errors
// of gate_of_file.
std::vector<TrafficRule> deploy_routes(const DeploySettings& settings);

}  // namespace lockstep
