// The memory of a server, counted before anything is loaded: a ledger (base/memory_ledger.h) of what this process may take, and on it the
// program, the model, its cache and the steps of serving, by the planner's figures (planning/memory_plan.h). The cache takes a share of what
// the model leaves, unless it is given. What is left then is for what clients bring. Knows no command line.
//   ServingMemory memory = admit_serving(settings, engine, {.megabytes = 0, .training = true}); engine.cache_bytes = memory.cache_bytes;
#pragma once
#include <algorithm>

#include "base/memory_ledger.h"
#include "engine/options.h"
#include "planning/memory_plan.h"

namespace lockstep {

// Of what is free when a server starts it takes so many percent; the rest is for others, and for what nobody counts.
inline constexpr std::int64_t kMemoryPercent = 80;
// Of what the model, the steps of serving, answers and uploads leave of that, the cache takes so many percent. With training most is for the
// models of clients. It is at most what so many requests of the whole context take (or kSmallCache): memory beyond that would lie idle.
inline constexpr std::int64_t kCachePercent = 50, kTrainingCachePercent = 10, kCacheRequests = 32;
inline constexpr std::int64_t kSmallCache = std::int64_t{256} << 20;

// Bytes of a cache. `left`: what the rest of the server leaves; `position`: bytes of one position; `context`: positions of the longest
// request. Never less than one such request or kSmallCache take, whichever is less, even where that does not fit: the ledger then says so.
std::int64_t automatic_cache(std::int64_t left, std::int64_t position, std::int64_t context, bool training);

struct ServingMemoryOptions {
  std::int64_t megabytes = 0;       // of the whole server; 0: kMemoryPercent of what is free
  bool training = false;            // the model's fp32 weights stay: trained models begin with them
  std::int64_t cache_bytes = 0;     // of keys and values; 0: automatic_cache
  // The most that answers which wait for their clients may take, and requests' bodies: less of a small total (ServingMemory says how much).
  std::int64_t answer_bytes = 0, upload_bytes = 0;
};

// Of the total, responses that are kept for their clients (docs/openai-api.md).
std::int64_t response_bytes_of(std::int64_t total);

// What the program takes of a server's total: threads, text, the store, and what is lost between blocks.
std::int64_t program_bytes(std::int64_t total);

struct ServingMemory {
  std::shared_ptr<MemoryLedger> ledger;  // without a limit on another device than the cpu, and where numbers are traced: the plan is not of these
  std::vector<MemoryLedger::Claim> fixed;
  std::int64_t cache_bytes = 0;          // for EngineOptions
  std::int64_t answer_bytes = 0, upload_bytes = 0;  // at most a sixteenth, and an eighth, of the total
  std::int64_t response_bytes = 0;                  // of responses that are kept: response_bytes_of(total)
  std::int64_t grammar_bytes() const { return std::min(upload_bytes / 8, std::int64_t{64} << 20); }  // of grammars that are kept, which are claimed with the uploads
};

// `engine.cache_bytes` and cache_pages are not read: options.cache_bytes says it. The weights in fp32 that loading needs are counted beside
// the model, and their room is free again before the cache is counted, so without training drop them before there is an engine. Errors: resource_exhausted
// when the server does not fit, with the figures and the options that make it smaller; those of reading config.json. From here on
// buffers are held to the ledger's total, too (tensor/memory_pool.h).
ServingMemory admit_serving(const RuntimeSettings& settings, const EngineOptions& engine, const ServingMemoryOptions& options);

// The least total (what --memory-megabytes must be, in bytes) of a server for which `plan` fits; options.megabytes and cache_bytes are not read:
// the plan's engine says its cache. Errors: those of plan_serving.
std::int64_t least_serving_memory(const RuntimeSettings& settings, const ServingPlan& plan, const ServingMemoryOptions& options);

}  // namespace lockstep
