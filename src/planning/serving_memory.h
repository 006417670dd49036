// Reserves a server's memory before anything is loaded: a ledger (base/memory_ledger.h) of what this process may allocate, with claims for the
// program, the model, its cache and steps by the planner's figures (planning/memory_plan.h). The cache gets a share of what the model leaves, unless
// its size is given; the rest is for clients' data. Knows no command line.
//   ServingMemory memory = admit_serving(settings, engine, {.megabytes = 0, .training = true}); engine.cache_bytes = memory.cache_bytes;
#pragma once
#include <algorithm>
#include <optional>

#include "base/memory_ledger.h"
#include "engine/options.h"
#include "planning/memory_plan.h"

namespace lockstep {

// Percentage of the free memory that a server takes when it starts; the rest is for other programs and uncounted memory.
inline constexpr std::int64_t kMemoryPercent = 80;
// Percentage of the remainder, after the model, serving steps, answers and uploads, that the cache takes. With training most is for clients'
// models. The cache is at most what kCacheRequests requests of the whole context take (or kSmallCache): more would lie idle.
inline constexpr std::int64_t kCachePercent = 50, kTrainingCachePercent = 10, kCacheRequests = 32;
inline constexpr std::int64_t kSmallCache = std::int64_t{256} << 20;

// Bytes of a cache. `left`: what the rest of the server leaves; `position`: bytes of one position; `context`: positions of the longest
// request. Never less than one such request or kSmallCache, whichever is less, even if that does not fit: the ledger then refuses it.
std::int64_t automatic_cache(std::int64_t left, std::int64_t position, std::int64_t context, bool training);

struct ServingMemoryOptions {
  std::int64_t megabytes = 0;     // of the whole server; 0: kMemoryPercent of what is free
  bool training = false;          // the model's fp32 weights stay: trained models begin with them
  std::int64_t cache_bytes = 0;   // of keys and values; 0: automatic_cache
  std::int64_t beside_bytes = 0;  // of models that the server will load beside this one: left out of what an automatic cache takes a share of
  // Limits of answers that wait for their clients, and of request bodies: less with a small total (ServingMemory has the values).
  std::int64_t answer_bytes = 0, upload_bytes = 0;
};

// The part of a server's total for responses that are stored for their clients (docs/openai-api.md).
std::int64_t response_bytes_of(std::int64_t total);

// Memory of the program itself within a server's total: threads, text, the store, and fragmentation.
std::int64_t program_bytes(std::int64_t total);

struct ServingMemory {
  std::shared_ptr<MemoryLedger> ledger;  // unlimited on devices other than the CPU and on the traced backend, which plans do not describe
  std::vector<MemoryLedger::Claim> fixed;
  std::int64_t cache_bytes = 0;                     // for EngineOptions
  std::int64_t answer_bytes = 0, upload_bytes = 0;  // at most a sixteenth, and an eighth, of the total
  std::int64_t response_bytes = 0;                  // of responses that are kept: response_bytes_of(total)
  std::int64_t grammar_bytes() const {
    return std::min(upload_bytes / 8, std::int64_t{64} << 20);
  }  // for cached grammars, which are claimed together with the uploads
};

// The cache's size is options.cache_bytes; `engine.cache_bytes` and cache_pages are not read. The fp32 weights that loading needs are counted beside
// the model, and released before the cache is counted, so without training free them before an engine is made. Errors: resource_exhausted when the
// server does not fit, with the figures and the options that make it smaller; those of reading config.json. From here on the pools of buffers are
// limited by the ledger's total too (tensor/memory_pool.h).
ServingMemory admit_serving(const RuntimeSettings& settings, const EngineOptions& engine, const ServingMemoryOptions& options);

// One more model of a server, beside those that its ledger counts already: its weights, the steps of serving, its cache. Errors as admit_serving's.
struct DeploymentMemory {
  std::vector<MemoryLedger::Claim> claims;
  std::int64_t cache_bytes = 0;  // for EngineOptions
};
// `cache_bytes` 0: automatic_cache. `shareable`: parameters are claimed one by one as they are read (model/weight_pool.h), and at most this many
// bytes of them are in memory already, for other models; none: all parameters are claimed here.
DeploymentMemory admit_deployment(MemoryLedger& ledger, const RuntimeSettings& settings, const EngineOptions& engine, std::int64_t cache_bytes,
                                  std::optional<std::int64_t> shareable = std::nullopt);
// The smallest cache of a deployment: what one request of the whole context takes, at most kSmallCache.
std::int64_t least_deployment_cache(const RuntimeSettings& settings, const EngineOptions& engine);
// The least memory that such a deployment takes.
std::int64_t least_deployment_bytes(const RuntimeSettings& settings, const EngineOptions& engine);

// The least total (what --memory-megabytes must be, in bytes) of a server for which `plan` fits; options.megabytes and cache_bytes are not read:
// the plan's engine says its cache. Errors: those of plan_serving.
std::int64_t least_serving_memory(const RuntimeSettings& settings, const ServingPlan& plan, const ServingMemoryOptions& options);

}  // namespace lockstep
