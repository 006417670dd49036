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

// A model's folder (or GGUF file). A temporary folder of a pulled snapshot is removed with this object.
class ModelPlace {
 public:
  // `source`: a path, the name of a shipped model, or STORE/NAME with a snapshot's id, its first digits, or a channel. Errors: not_found; those of
  // stores and pulls.
  explicit ModelPlace(const std::string& source);
  ~ModelPlace();
  ModelPlace(const ModelPlace&) = delete;
  const std::string& path() const { return path_; }
  const std::string& snapshot() const { return snapshot_; }  // the id of the pulled snapshot; empty: none was pulled

 private:
  std::string path_, snapshot_;
  std::filesystem::path made_;  // the temporary folder; empty: none
};

// Resolves a client's `source` below `folder`: the path of a model there, or STORE/NAME of a snapshot or channel of a store there. Errors: not_found;
// io.
std::string place_below(const std::string& folder, const std::string& source);

struct DeploymentParts {
  RuntimeSettings runtime;  // without the model
  ServingOptions serving;   // without the cache's size
  std::shared_ptr<Executor> executor;
  std::shared_ptr<MemoryLedger> ledger;
  std::shared_ptr<WeightPool> pool = nullptr;  // holds equal weights of several models once; null: each model has its own
  std::shared_ptr<Runtime> first = nullptr;    // with a pool: the runtime of the server's own model, whose device has the memory of all
  std::int64_t cache_bytes = 0;                // of each; 0: automatic_cache
  std::string generation_config = "auto";
  std::function<void(GenerationService&)> prepare;  // called before the service answers; may be null
  std::string folder;                               // for open_below
  bool sleeps = false;  // models can be put to sleep and loaded again (ModelDeployment::load); an automatic cache is then as small as possible
};

class DeploymentOpener : public std::enable_shared_from_this<DeploymentOpener> {
 public:
  explicit DeploymentOpener(DeploymentParts parts) : parts_(std::move(parts)) {}
  // The deployment's `source` is left empty. `followed`: gets what a follower needs of the model; then memory for a second copy of its weights is
  // claimed, and it never sleeps. null: it follows no channel. Errors: those of open_model and admit_deployment.
  ModelDeployment open(const std::string& name, std::shared_ptr<const ModelPlace> place, Followed* followed = nullptr) const;
  // The same; the deployment begins asleep if there is memory for it only while others sleep.
  ModelDeployment open_or_asleep(const std::string& name, const std::shared_ptr<const ModelPlace>& place) const;
  // For a client's `source`, resolved by place_below(parts.folder). Errors: those of place_below and ModelPlace too.
  ModelDeployment open_below(const std::string& name, const std::string& source) const;

 private:
  ModelDeployment described(const std::string& name, const std::shared_ptr<const ModelPlace>& place) const;
  LoadedDeployment load(const std::string& name, const ModelPlace& place, Followed* followed) const;
  const DeploymentParts parts_;
  mutable std::mutex one_;  // one model is loaded at a time, so that the memory of reading is counted once
};

}  // namespace lockstep
