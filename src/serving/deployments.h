// The models of one server by name: each with a generation service of its own, all on one executor, and the aliases that mean them (serving/traffic.h).
// One is taken out of the names at once, and ends when its last request has; its memory is free then. The first one stays as long as the server.
// One that can be loaded again leaves memory when nobody has asked it for so long (scale to zero): it is asleep until somebody does.
//   Deployments deployments(traffic, first); deployments.add(open("b", "models/b"));
//   const CalledDeployment called = deployments.call("chat", "ann"); if (called.service) called.service->generate(...);
//   else deployments.wake(called.name, [](std::shared_ptr<GenerationService> service, std::exception_ptr fault) { ... });
// A request names a model as NAME, NAME#ADAPTER, an adapter's name, or as Fireworks does: accounts/A/models/M#accounts/A/deployments/NAME.
// Any thread; not the executor's.
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
#include "base/memory_ledger.h"
#include "model/weight_pool.h"
#include "serving/load_queue.h"
#include "serving/serving.h"
#include "serving/traffic.h"

namespace lockstep {

// How the snapshots of a channel come to a deployment's service: none do; as other weights beside the live ones, or written into these.
enum class Follows { no, beside, in_place };

// The memory that is counted for a deployment: released when its service is gone.
struct DeploymentRoom {
  std::vector<MemoryLedger::Claim> claims;
  std::shared_ptr<WeightPool::Part> weights;  // of those that may stand in memory for others too; null: they are among the claims
  std::int64_t bytes() const;                 // but for what others have too
  std::int64_t shared_bytes() const { return weights ? weights->shared_bytes() : 0; }
  void clear() { claims.clear(), weights.reset(); }
};

struct LoadedDeployment {
  DeploymentRoom memory;
  std::shared_ptr<GenerationService> service;  // whose model has the deployment's name
};

struct ModelDeployment {
  std::string name, source;  // source: what it was made of, as it was given
  double created = 0;        // Unix seconds
  DeploymentRoom memory = {};
  std::shared_ptr<GenerationService> service;  // null: it is asleep from the beginning, and `load` is there
  Follows follows = Follows::no;               // one that does is not removed
  std::string snapshot = {};                   // that it is made of each time; empty: of none, or it follows a channel
  // The same once more; null: it stays in memory. One thread at a time; not after stop(). Errors: resource_exhausted; others that stay.
  std::function<LoadedDeployment()> load = nullptr;
};

// Those that can be loaded again leave memory when nobody has asked them for so many seconds; 0: never. Who asks one that is asleep waits for it so long.
struct SleepSettings {
  double idle_seconds = 0, hold_seconds = 0;
};

// It is asleep, and may be there in so many seconds.
class AsleepError : public Error {
 public:
  AsleepError(std::string message, double seconds) : Error(ErrorCode::resource_exhausted, std::move(message)), seconds_(seconds) {}
  double seconds() const { return seconds_; }

 private:
  double seconds_;
};

// What a request's model means.
struct CalledDeployment {
  std::string name, adapter;                   // adapter: of the deployment's own; empty: none is named
  std::shared_ptr<GenerationService> service;  // null: it is asleep (wake)
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

  // From now on. Once.
  void set_sleep(const SleepSettings& settings);
  // `then` is called once, here or on another thread: with the service of the deployment, which is loaded if it sleeps, or with the Error why there is none:
  // AsleepError after SleepSettings::hold_seconds, or where there is no room; not_found; those of ModelDeployment::load.
  using Woken = std::function<void(std::shared_ptr<GenerationService> service, std::exception_ptr fault)>;
  void wake(const std::string& name, Woken then) const;
  // The same, however long it takes. Not on a thread that requests of all wait for.
  std::shared_ptr<GenerationService> awake(const std::string& name) const;
  // Where `work` finds no memory (resource_exhausted), those that nobody asks now go to sleep, longest idle first, until it does.
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

  struct Line {
    std::string name, source;
    double created = 0;
    // That are claimed for it alone; 0: they are counted with the server's own, or it is asleep. shared_bytes: of weights that others have too.
    std::int64_t bytes = 0, shared_bytes = 0;
    std::shared_ptr<GenerationService> service;  // null: it is asleep
    Follows follows = Follows::no;
    std::string snapshot = {}, fault = {};  // of its weights now, or when it is loaded; why it could not be loaded the last time
    bool is_loading = false;
    std::uint64_t requests = 0, generated_tokens = 0, loads = 0;  // since it was made; how often it was loaded after sleep
  };
  std::vector<Line> list() const;          // the first, then in the order in which they came
  std::vector<std::string> names() const;  // and aliases, behind them
  std::size_t leaving() const;             // taken out, with requests that have not ended
  // All services end, as GenerationService::stop.
  void stop();

 private:
  struct One : ModelDeployment {
    std::chrono::steady_clock::time_point used = std::chrono::steady_clock::now();
    std::uint64_t requests = 0, generated_tokens = 0, loads = 0;  // of services that it had before, and how often it had another
    std::string fault = {};
  };
  using Kept = std::shared_ptr<One>;
  static Kept kept(ModelDeployment&& deployment);
  Kept find(const std::string& name) const;  // under the lock; null: none
  // The one that was idle longest, and for so long; false: there is none. Its memory is free then.
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
  std::thread ending_;  // begun with the first that leaves; destroys services: nobody else is the last to know one, for a callback of a service must not end it
};

// Of a server with one model and no alias.
std::shared_ptr<Deployments> only_deployment(std::shared_ptr<GenerationService> service);

}  // namespace lockstep
