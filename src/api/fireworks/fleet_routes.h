// Fireworks' routes on a replica, a server without a trainer, which answers for the whole fleet that it belongs to: hot load of weights.
// (Its completions are in model_completions.h.)
//  POST /hot_load/v1/models/hot_load {"identity"}: points the fleet at a snapshot; answered when it is ready, cannot take it, or after kLoadSeconds
//  GET  /hot_load/v1/models/hot_load: all replicas, the slowest first
//  GET  /api/fleet: the same for the page, with bytes and seconds
// Any thread.
//   add_fleet_routes(routes, fleet);
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "api/routes.h"
#include "serving/fleet_port.h"

namespace lockstep {

inline constexpr double kLoadSeconds = 50;  // the package waits for 60

void add_fleet_routes(Routes& routes, const std::shared_ptr<FleetPort>& fleet);

// GET's answer: {"replicas": [{readiness, current_snapshot_identity, loading_state: {stage, target_snapshot_identity}}]}.
nlohmann::ordered_json hot_load_json(const std::vector<FleetMember>& members);

// POSTs that wait for a fleet, on one thread. Any thread.
class FleetWaiter {
 public:
  explicit FleetWaiter(std::shared_ptr<FleetPort> fleet);
  ~FleetWaiter();  // what waits is answered
  // Points the fleet at a snapshot, as FleetPort::load; the answer comes when that has ended, or after kLoadSeconds. Errors: RequestError for a snapshot
  // that is not there; resource_exhausted when too many wait.
  void load(const std::string& identity, const std::shared_ptr<Responder>& out, const std::string& transition = {});

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace lockstep
