// The models of one server by name (serving/model_deployment.h): each has its own generation service, all share one executor, and aliases split traffic
// over them (serving/traffic.h). The first one stays as long as the server. A deployment that is removed takes no new request, and its memory is free
// when its last request has ended. A deployment that can be loaded again leaves memory when it is idle (serving/deployment_sleep.h).
//   Deployments deployments(traffic, first); deployments.add(open("b", "models/b"));
//   const CalledDeployment called = deployments.call("chat", "ann"); if (called.service) called.service->generate(...);
//   else deployments.wake(called.name, [](std::shared_ptr<GenerationService> service, std::exception_ptr fault) { ... });
// Any thread but the executor's.
#pragma once
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "serving/deployment_sleep.h"
#include "serving/load_queue.h"
#include "serving/model_deployment.h"
#include "serving/traffic.h"

namespace lockstep {

// What the model of a request means here.
struct CalledDeployment {
  std::string name, adapter;                   // adapter: one of the deployment's; empty: none is named
  std::shared_ptr<GenerationService> service;  // null: it is asleep (Deployments::wake)
};

class Deployments {
 public:
  static constexpr std::size_t kMost = 64;

  Deployments(std::shared_ptr<TrafficTable> traffic, ModelDeployment first);
  ~Deployments();  // call stop() before it where requests may be open: else a request's callback could destroy its own service
  Deployments(const Deployments&) = delete;
  Deployments& operator=(const Deployments&) = delete;

  // Error already_exists: a deployment, an alias or an adapter has that name. check_name: called before the model is loaded; add() checks again.
  void check_name(const std::string& name) const;
  void add(ModelDeployment deployment);
  // Errors: not_found; already_exists while an alias has a share of it, for the first one, and for one that follows a channel.
  void remove(const std::string& name);
  // Sets the traffic of an alias to existing deployments. Errors: those of TrafficTable; already_exists; not_found.
  void route(const std::string& alias, std::vector<TrafficShare> shares);
  // Sets a stored rule, with the shares to roll back to; these are dropped when they name a deployment that is gone.
  void restore(TrafficRule rule);

  // The deployment that a request's model names (serving/model_name.h): a deployment, an alias or an adapter; empty: the first one. `who` chooses among
  // an alias's shares (TrafficTable::choose). Error not_found, with the known names.
  CalledDeployment call(const std::string& model, const std::string& who) const;
  std::shared_ptr<GenerationService> first() const { return first_; }
  // One deployment and no alias: every request means that one, whoever sends it.
  bool is_single() const;
  TrafficTable& traffic() const { return *traffic_; }

  // Once; deployments may fall asleep from now on.
  void set_sleep(const SleepSettings& settings);
  // Calls `then` once, here or on another thread, with the deployment's service, which is loaded first if it sleeps, or with the Error why there is none:
  // AsleepError after SleepSettings::hold_seconds, or where memory is short; not_found; those of ModelDeployment::load.
  using Woken = std::function<void(std::shared_ptr<GenerationService> service, std::exception_ptr fault)>;
  void wake(const std::string& name, Woken then) const;
  // The same, waiting as long as it takes. Blocks: not on a thread that other requests wait for.
  std::shared_ptr<GenerationService> awake(const std::string& name) const;
  // Calls `work`; while it fails with resource_exhausted, puts the deployment that was idle longest to sleep and tries again.
  template <class Work>
  auto with_room(const Work& work) const -> decltype(work()) {
    while (true) {
      try {
        return work();
      } catch (const Error& e) {
        if (e.code() != ErrorCode::resource_exhausted || !make_room()) throw;
      }
    }
  }

  std::vector<DeploymentLine> list() const;  // the first, then in the order of add()
  std::vector<std::string> names() const;    // of deployments, then of aliases
  std::size_t leaving() const;               // removed, with requests that have not ended
  void stop();                               // GenerationService::stop of each

 private:
  struct One : ModelDeployment {
    std::chrono::steady_clock::time_point used = std::chrono::steady_clock::now();
    std::uint64_t requests = 0, generated_tokens = 0, loads = 0;  // of services that it had before it slept; how often it was loaded again
    std::string fault = {};
  };
  using Kept = std::shared_ptr<One>;
  static Kept kept(ModelDeployment&& deployment);
  Kept find(const std::string& name) const;  // under the lock; null: none
  // Frees the memory of the deployment that was idle longest, if for at least that long; false: there is none.
  bool put_to_sleep(double idle_seconds) const;
  bool make_room() const;
  void load_again(const Kept& one) const;
  AsleepError asleep_error(const std::string& name) const;
  void check_free(const std::string& name) const;
  void end_leaving();

  const std::shared_ptr<TrafficTable> traffic_;
  const std::shared_ptr<GenerationService> first_;
  mutable std::mutex falling_asleep_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable wake_;
  std::vector<Kept> deployments_, leaving_;
  bool stopping_ = false;
  SleepSettings sleep_;
  std::thread idling_;  // begun by set_sleep
  mutable LoadQueue loads_;
  // Started with the first removal. It alone destroys services: a service's own callback must not hold the last pointer to it.
  std::thread ending_;
};

// For a server with one model and no alias.
std::shared_ptr<Deployments> only_deployment(std::shared_ptr<GenerationService> service);

}  // namespace lockstep
