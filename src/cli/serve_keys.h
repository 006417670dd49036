// The API keys of `lockstep serve`: of a file and of LOCKSTEP_API_KEY, and what the file allows each. One thread.
//   ApiKeys keys = read_keys(file);   const Terms terms{executor, deployments, rates}; terms.set(keys);
#pragma once
#include <map>
#include <memory>
#include <string>

#include "api/access.h"
#include "serving/deployments.h"

namespace lockstep {

bool has_key_in_environment();
// The keys of the file ("": none) and of the environment. Errors: those of ApiKeys.
ApiKeys read_keys(const std::string& file);

// The parts that enforce the terms of each key (KeyTerms).
struct Terms {
  std::shared_ptr<Executor> executor;
  std::shared_ptr<Deployments> deployments;
  std::shared_ptr<RateLimits> rates;
  // Sets the limits of open streams, which are counted for each model on its own, and what else a service does by key (serving/callers.h).
  static void set_streams(const ApiKeys& keys, GenerationService& service);
  void set(const ApiKeys& keys) const;
};

// Reads a changed key file again; its keys count from the next request on. A file that cannot be read changes nothing.
void reload_keys(KeyRing& ring, const std::string& file, const Terms& terms);

}  // namespace lockstep
