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

// Of a request's "gate" what an alias keeps (TrafficRule::gate) that leads where `rule` says: null where nothing that follows a channel may need it. Error
// unsupported: a deployment among them whose weights to come cannot be asked anything before they are live.
std::shared_ptr<const std::string> gate_to_keep(const Deployments& deployments, const TrafficRule& rule, const Json& gate);

}  // namespace lockstep
