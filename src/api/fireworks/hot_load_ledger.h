// The ledger of hot loads into a deployment of a fleet: an entry when a load begins, which is ended when the fleet has the snapshot or cannot have it. A
// repeated load of what is there, or on its way, adds none. (A trainer's loads are done at once: host/control_plane.h.) Any thread.
//   begin_hot_load(*records, owner, name, "step-3");   end_hot_load(*records, owner, name, "step-3", progress);
#pragma once
#include <optional>
#include <string>

#include "serving/fleet_port.h"
#include "serving/hosted_deployment.h"

namespace lockstep {

// How the fleet changes over for a deployment (FleetPort::load); empty: as its channel says.
std::string fleet_transition(const Deployment& deployment);
// The deployment; nothing, and none is made, where there is none.
std::optional<Deployment> begin_hot_load(HostedDeployments& records, const std::string& owner, const std::string& name, const std::string& identity);
// No effect while the load is on its way, and for a deployment that was deleted. Throws nothing: a ledger that cannot be written is logged.
void end_hot_load(HostedDeployments& records, const std::string& owner, const std::string& name, const std::string& identity, const FleetProgress& progress);

}  // namespace lockstep
