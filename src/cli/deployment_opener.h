// Loads one more model for a server that runs, on its executor and within its memory: from a folder, or from a snapshot of a store, which is written
// to a folder of the system's temporary files until it is read. Any thread; one model after another.
//   const auto opener = std::make_shared<const DeploymentOpener>(DeploymentParts{.runtime = settings, .executor = executor, .ledger = ledger});
//   deployments.add(opener->open("b", std::make_shared<const ModelPlace>("models/b")));
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "cli/follow_options.h"
#include "planning/serving_memory.h"
#include "serving/deployments.h"
#include "serving/loading.h"
#include "serving/served_defaults.h"

namespace lockstep {

// A model's folder (or GGUF file). What was made for it alone goes with this object.
class ModelPlace {
 public:
  // Of a path, the name of a shipped model, or STORE/NAME: a snapshot's id, its first digits, or a channel. Errors: not_found; those of stores and pulls.
  explicit ModelPlace(const std::string& source);
  ~ModelPlace();
  ModelPlace(const ModelPlace&) = delete;
  const std::string& path() const { return path_; }
  const std::string& snapshot() const { return snapshot_; }  // the id of the one that was pulled; empty: none was

 private:
  std::string path_, snapshot_;
  std::filesystem::path made_;  // empty: nothing was
};

// What a client's source means: the path of a model below `folder`, or STORE/NAME of a snapshot or channel of a store there. Errors: not_found else; io.
std::string place_below(const std::string& folder, const std::string& source);

struct DeploymentParts {
  RuntimeSettings runtime;  // but for the model
  ServingOptions serving;   // but for the cache
  std::shared_ptr<Executor> executor;
  std::shared_ptr<MemoryLedger> ledger;
  std::shared_ptr<WeightPool> pool = nullptr;  // where equal weights stand once; null: each model has its own
  std::shared_ptr<Runtime> first = nullptr;    // with a pool: the server's own, whose device has the blocks of all
  std::int64_t cache_bytes = 0;                // of each; 0: automatic_cache
  std::string generation_config = "auto";
  std::function<void(GenerationService&)> prepare;  // before it serves; null: nothing
  std::string folder;                               // for open_below
  bool sleeps = false;  // what is opened can be loaded again (ModelDeployment::load): its cache is as small as may be, if it is automatic
};

class DeploymentOpener : public std::enable_shared_from_this<DeploymentOpener> {
 public:
  explicit DeploymentOpener(DeploymentParts parts) : parts_(std::move(parts)) {}
  // Whose source it leaves empty. `followed`: what a follower needs of it, with the memory for a second copy of its weights, and then it never sleeps; null:
  // nobody follows. Errors: those of open_model and admit_deployment.
  ModelDeployment open(const std::string& name, std::shared_ptr<const ModelPlace> place, Followed* followed = nullptr) const;
  // The same, asleep where there is no memory now and would be, if others slept.
  ModelDeployment open_or_asleep(const std::string& name, const std::shared_ptr<const ModelPlace>& place) const;
  // For a client: `source` is for place_below(parts.folder). Errors: those of ModelPlace too.
  ModelDeployment open_below(const std::string& name, const std::string& source) const;

 private:
  ModelDeployment described(const std::string& name, const std::shared_ptr<const ModelPlace>& place) const;
  LoadedDeployment load(const std::string& name, const ModelPlace& place, Followed* followed) const;
  const DeploymentParts parts_;
  mutable std::mutex one_;  // model is loaded at a time: what reading takes is counted once
};

}  // namespace lockstep
