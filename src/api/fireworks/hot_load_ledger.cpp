#include "api/fireworks/hot_load_ledger.h"

#include <algorithm>

#include "base/log.h"
#include "base/server_paths.h"
#include "host/training_records.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostFailureBytes = 1000;
constexpr const char* kOvertaken = "another load came before all replicas had it, or no replica is alive";

// The entry that is not ended; none: null.
HotLoad* open_load(Deployment& deployment, const std::string& identity) {
  const auto found =
      std::find_if(deployment.ledger.rbegin(), deployment.ledger.rend(), [&](const HotLoad& one) { return one.identity == identity && one.ended == 0; });
  return found == deployment.ledger.rend() ? nullptr : &*found;
}
}  // namespace

std::string fleet_transition(const Deployment& deployment) {
  if (deployment.transition_type == "SYNC") return "staged";
  return deployment.transition_type == "ASYNC" ? "immediate" : "";
}

std::optional<Deployment> begin_hot_load(HostedDeployments& records, const std::string& owner, const std::string& name, const std::string& identity) {
  return records.change_existing(owner, name, [&](Deployment& d) {
    if (!d.ledger.empty() && d.ledger.back().identity == identity && d.ledger.back().failure.empty()) return;
    for (HotLoad& before : d.ledger)
      if (before.ended == 0) before.ended = unix_now(), before.failure = kOvertaken;
    d.add({.identity = identity, .type = HotLoad::kAnyWay, .began = unix_now(), .ended = 0, .failure = {}});
  });
}

void end_hot_load(HostedDeployments& records, const std::string& owner, const std::string& name, const std::string& identity, const FleetProgress& progress) {
  if (!progress.ended) return;
  try {
    std::optional<Deployment> now = records.find(owner, name);
    if (!now || !open_load(*now, identity)) return;
    records.change_existing(owner, name, [&](Deployment& d) {
      HotLoad* const load = open_load(d, identity);
      if (!load) return;  // its ledger was emptied in this moment
      load->ended = unix_now();
      if (progress.ready) {
        d.identity = identity;
        d.failed.clear(), d.failure.clear();
        return;
      }
      const std::string why = progress.error.empty() ? kOvertaken : progress.error;
      load->failure = d.failure = without_server_paths(why).substr(0, kMostFailureBytes);
      d.failed = identity;
    });
  } catch (const std::exception& e) {
    log_warning("the ledger of a deployment cannot be written", {{"deployment", name}, {"reason", e.what()}});
  }
}

}  // namespace lockstep
