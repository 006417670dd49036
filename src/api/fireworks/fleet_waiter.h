// POSTs of hot loads that wait for a fleet: each is answered when the fleet is ready, cannot take the snapshot, or after kLoadSeconds. Files that another
// trainer left (FleetPort::has_delivery) are taken into the store first, on a thread of their own. Any thread.
//   FleetWaiter waiter(fleet);   waiter.load({.identity = "step-3"}, responder);   members = waiter.members();
#pragma once
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "api/exchange.h"
#include "api/worker.h"
#include "serving/fleet_port.h"

namespace lockstep {

inline constexpr double kLoadSeconds = 50;  // the package waits for 60

class FleetWaiter {
 public:
  explicit FleetWaiter(std::shared_ptr<FleetPort> fleet);
  ~FleetWaiter();  // what waits is answered
  // Points the fleet at a snapshot, as FleetPort::load; an empty `transition` is the channel's. Errors: RequestError for a snapshot that is not there;
  // resource_exhausted when too many wait. What is wrong with files that are taken in is the answer.
  void load(const FleetDelivery& delivery, const std::shared_ptr<Responder>& out, const std::string& transition = {});
  // The fleet's. Where the files that were asked for last could not be taken in, the first one is in error with them as its target.
  std::vector<FleetMember> members();

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
  Worker deliveries_;  // last: it ends first
};

}  // namespace lockstep
