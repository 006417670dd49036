// One deployment of a server: a model by name, its generation service and the memory that was reserved for it. What a server with several of them
// does with them is in serving/deployments.h. Plain values; any thread.
//   ModelDeployment made{.name = "b", .source = "models/b", .service = service};
//   made.load = [open] { return LoadedDeployment{.memory = {}, .service = open()}; };  // so it may leave memory and come back
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_ledger.h"
#include "model/weight_pool.h"
#include "serving/serving.h"

namespace lockstep {

// How a deployment gets the snapshots of a channel (fleet/follower.h): not at all; as a second set of weights, to which requests switch between two
// steps; or written over the weights in use.
enum class Follows { no, beside, in_place };

// The memory reserved for a deployment; released when its service has ended.
struct DeploymentRoom {
  std::vector<MemoryLedger::Claim> claims;
  std::shared_ptr<WeightPool::Part> weights;  // weights that other deployments may share; null: all weights are among the claims
  std::int64_t bytes() const;                 // without what is shared
  std::int64_t shared_bytes() const { return weights ? weights->shared_bytes() : 0; }
  void clear() { claims.clear(), weights.reset(); }
};

struct LoadedDeployment {
  DeploymentRoom memory;
  std::shared_ptr<GenerationService> service;  // whose model has the deployment's name
};

struct ModelDeployment {
  std::string name, source;  // source: the folder, file or snapshot it was made of, as the request or option named it
  double created = 0;        // Unix seconds
  DeploymentRoom memory = {};
  std::shared_ptr<GenerationService> service;  // null: not loaded yet, and `load` is set
  Follows follows = Follows::no;               // a deployment that follows a channel cannot be removed
  std::string snapshot = {};                   // the snapshot that every load reads; empty: none, or it follows a channel
  // Loads the model again after it left memory; null: it never leaves. Called by one thread at a time, never after Deployments::stop().
  // Errors: resource_exhausted where memory is short now; others mean that it cannot be loaded.
  std::function<LoadedDeployment()> load = nullptr;
};

// A row of Deployments::list.
struct DeploymentLine {
  std::string name, source;
  double created = 0;
  // Bytes reserved for this deployment alone; 0: it is the server's first model, or asleep. shared_bytes: weights that other deployments use too.
  std::int64_t bytes = 0, shared_bytes = 0;
  std::shared_ptr<GenerationService> service;  // null: asleep
  Follows follows = Follows::no;
  std::string snapshot = {};  // of its weights now, or of the next load
  std::string fault = {};     // why the last load failed; empty: it did not
  bool is_loading = false;
  std::uint64_t requests = 0, generated_tokens = 0, loads = 0;  // since it was made; loads: how often it was loaded after sleep
};

}  // namespace lockstep
