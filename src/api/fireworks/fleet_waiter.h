// POSTs of hot loads that wait for a fleet: each is answered when the fleet is ready, cannot take the snapshot, or after kLoadSeconds. Files that another
// trainer left (FleetPort::has_delivery) are taken into the store first, on a thread of their own. Any thread.
//   FleetWaiter waiter(fleet);   waiter.load({.identity = "step-3"}, responder);   members = waiter.members();
#pragma once
#include <functional>
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
  // `seconds` after which a request is answered, whatever the fleet does.
  explicit FleetWaiter(std::shared_ptr<FleetPort> fleet, double seconds = kLoadSeconds);
  ~FleetWaiter();  // answers all that wait
  // Points the fleet at a snapshot, as FleetPort::load; an empty `transition` is the channel's. Errors: RequestError for a snapshot that is not
  // there; resource_exhausted when too many wait. A fault in files that are taken in is told in the answer.
  // `told`: called once before the answer, with what it says, where load() throws nothing.
  using Told = std::function<void(const FleetProgress&)>;
  void load(const FleetDelivery& delivery, const std::shared_ptr<Responder>& out, const std::string& transition = {}, const Told& told = {});
  // The fleet's members. If the files of the last request could not be taken in, the first member is shown in error with them as its target.
  std::vector<FleetMember> members();

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
  Worker deliveries_;  // last member, so that its thread ends before the others are destroyed
};

}  // namespace lockstep
