// The gates of aliases for snapshots from a channel: a snapshot goes live in a deployment only when it passes the gates of all aliases that lead to
// the deployment, or would after a rollback. Each compares it with its alias's live version, which may be the deployment's present weights. Any
// thread, one a deployment.
//   follower_options.gate = channel_gate(alias_gate, "v8");
#pragma once
#include <memory>
#include <string>

#include "api/openai/alias_gate.h"
#include "serving/version_gate.h"

namespace lockstep {

std::shared_ptr<VersionGate> channel_gate(std::shared_ptr<AliasGate> gate, std::string deployment);

// The text of a request's "gate" that an alias with `rule` keeps (TrafficRule::gate); null if no deployment that it may lead to follows a
// channel. Error unsupported: one of them takes new weights in place (--swap-memory single), so that they cannot be judged before they are live.
std::shared_ptr<const std::string> gate_to_keep(const Deployments& deployments, const TrafficRule& rule, const Json& gate);

}  // namespace lockstep
