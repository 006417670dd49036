// The memory of a server, counted before anything is loaded: a ledger (base/memory_ledger.h) of what this process may take, and on it the
// program, the model, its cache and the steps of serving, by the planner's figures (service/memory_plan.h). What is left is for what
// clients bring. Knows no command line.
//   ServingMemory memory = admit_serving(settings, engine, {.megabytes = 0, .training = true}); ... memory.loaded();
#pragma once
#include "base/memory_ledger.h"
#include "engine/options.h"
#include "service/loading.h"

namespace lockstep {

// Of what is free when a server starts it takes so many percent; the rest is for others, and for what nobody counts.
inline constexpr std::int64_t kMemoryPercent = 80;

struct ServingMemoryOptions {
  std::int64_t megabytes = 0;       // of the whole server; 0: kMemoryPercent of what is free
  bool training = false;            // the model's fp32 weights stay: trained models begin with them
  // The most that answers which wait for their clients may take, and requests' bodies: less of a small total (ServingMemory says how much).
  std::int64_t answer_bytes = 0, upload_bytes = 0;
};

struct ServingMemory {
  std::shared_ptr<MemoryLedger> ledger;  // without a limit on another device than the cpu, and where numbers are traced: the plan is not of these
  std::vector<MemoryLedger::Claim> fixed;
  MemoryLedger::Claim masters;           // released when only loading needed them
  std::int64_t answer_bytes = 0, upload_bytes = 0;  // at most a sixteenth, and an eighth, of the total
};

// Errors: resource_exhausted when the server does not fit, with the figures and the options that make it smaller; those of reading
// config.json. From here on buffers are held to the ledger's total, too (tensor/memory_pool.h).
ServingMemory admit_serving(const RuntimeSettings& settings, const EngineOptions& engine, const ServingMemoryOptions& options);

}  // namespace lockstep
