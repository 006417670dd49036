// The models of one server by name: each with a generation service of its own, all on one executor, and the aliases that mean them (serving/traffic.h).
// One is taken out of the names at once, and ends when its last request has; its memory is free then. The first one stays as long as the server.
//   Deployments deployments(traffic, first); deployments.add(open("b", "models/b"));
//   const CalledDeployment called = deployments.call("chat", "ann"); called.service->generate(...);
// A request names a model as NAME, NAME#ADAPTER, an adapter's name, or as Fireworks does: accounts/A/models/M#accounts/A/deployments/NAME.
// Any thread; not the executor's.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/memory_ledger.h"
#include "serving/serving.h"
#include "serving/traffic.h"

namespace lockstep {

// How the snapshots of a channel come to a deployment's service: none do; as other weights beside the live ones, or written into these.
enum class Follows { no, beside, in_place };

struct ModelDeployment {
  std::string name, source;                    // source: what it was made of, as it was given
  double created = 0;                          // Unix seconds
  std::vector<MemoryLedger::Claim> memory;     // released when the service is gone
  std::shared_ptr<GenerationService> service;  // whose model has this name
  Follows follows = Follows::no;               // one that does is not removed
};

// What a request's model means.
struct CalledDeployment {
  std::string name, adapter;  // adapter: of the deployment's own; empty: none is named
  std::shared_ptr<GenerationService> service;
};

// The parts of a name of a model: "v7#mine" and "models/v7#deployments/v7" are of the deployment v7.
struct ModelName {
  std::string deployment, adapter;
};
ModelName parse_model_name(const std::string& model);

class Deployments {
 public:
  static constexpr std::size_t kMost = 64;

  Deployments(std::shared_ptr<TrafficTable> traffic, ModelDeployment first);
  ~Deployments();  // after stop(), where requests may be open: a callback must not be the last to know its service
  Deployments(const Deployments&) = delete;
  Deployments& operator=(const Deployments&) = delete;

  // Error already_exists: a deployment, an alias or an adapter has that name. check_name: before anything is loaded; add() looks again.
  void check_name(const std::string& name) const;
  void add(ModelDeployment deployment);
  // Errors: not_found; already_exists while an alias has a share of it, for the first one, and for one that follows a channel.
  void remove(const std::string& name);
  // Traffic of an alias, whose deployments have to be here. Errors: those of TrafficTable; already_exists; not_found.
  void route(const std::string& alias, std::vector<TrafficShare> shares);
  // The same of a rule with what stood before, which is left out where it names what is not here.
  void restore(TrafficRule rule);

  // A name with nothing behind it is the first one. `who` as TrafficTable::choose has it. Error not_found, with what there is.
  CalledDeployment call(const std::string& model, const std::string& who) const;
  std::shared_ptr<GenerationService> first() const { return first_; }
  // Whether requests can mean but one thing: who they are for is then not looked at.
  bool is_single() const;
  TrafficTable& traffic() const { return *traffic_; }

  struct Line {
    std::string name, source;
    double created = 0;
    std::int64_t bytes = 0;  // that are claimed for it; 0: they are counted with the server's own
    std::shared_ptr<GenerationService> service;
    Follows follows = Follows::no;
  };
  std::vector<Line> list() const;          // the first, then in the order in which they came
  std::vector<std::string> names() const;  // and aliases, behind them
  std::size_t leaving() const;             // taken out, with requests that have not ended
  // All services end, as GenerationService::stop.
  void stop();

 private:
  using Kept = std::shared_ptr<ModelDeployment>;
  Kept find(const std::string& name) const;  // under the lock; null: none
  void check_free(const std::string& name) const;
  void end_leaving();

  const std::shared_ptr<TrafficTable> traffic_;
  const std::shared_ptr<GenerationService> first_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable wake_;
  std::vector<Kept> deployments_, leaving_;
  bool stopping_ = false;
  std::thread ending_;  // begun with the first that leaves; destroys services: nobody else is the last to know one, for a callback of a service must not end it
};

// Of a server with one model and no alias.
std::shared_ptr<Deployments> only_deployment(std::shared_ptr<GenerationService> service);

}  // namespace lockstep
