// Loads one more model for a server that runs, on its executor and within its memory: from a folder, or from a snapshot of a store, which is written
// to a folder of the system's temporary files until it is read. Any thread; one model after another.
//   DeploymentOpener opener({.runtime = settings, .serving = options, .executor = executor, .ledger = ledger}); deployments.add(opener.open("b", "models/b"));
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
  std::int64_t cache_bytes = 0;  // of each; 0: automatic_cache
  std::string generation_config = "auto";
  std::function<void(GenerationService&)> prepare;  // before it serves; null: nothing
  std::string folder;                               // for open_below
};

class DeploymentOpener {
 public:
  explicit DeploymentOpener(DeploymentParts parts) : parts_(std::move(parts)) {}
  // Errors: those of ModelPlace, open_model and admit_deployment.
  ModelDeployment open(const std::string& name, const std::string& source) const;
  // Whose source it leaves empty. `followed`: what a follower needs of it, with the memory for a second copy of its weights; null: nobody follows.
  ModelDeployment open(const std::string& name, const ModelPlace& place, Followed* followed = nullptr) const;
  // The same for a client: `source` is for place_below(parts.folder).
  ModelDeployment open_below(const std::string& name, const std::string& source) const;

 private:
  const DeploymentParts parts_;
  mutable std::mutex one_;  // model is loaded at a time: what reading takes is counted once
};

}  // namespace lockstep
