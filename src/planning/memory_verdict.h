// Whether a plan fits into memory, how much is missing, and which options would make it fit; those are planned too, so what is suggested fits.
//   const MemoryVerdict verdict = judge_training(settings, plan, memory_for_training(0)); if (!verdict.fits()) ...
#pragma once
#include <string>
#include <vector>

#include "planning/memory_plan.h"
#include "planning/serving_memory.h"

namespace lockstep {

// Available memory, and how that is determined.
struct AvailableMemory {
  std::int64_t bytes = 0;  // negative: unknown
  std::string what;        // "80% of 22000.0 MB that are free here (MemAvailable)"
};
// `megabytes` of memory; 0: what is free on this machine, for a server kMemoryPercent of that.
AvailableMemory memory_for_training(std::int64_t megabytes);
AvailableMemory memory_for_serving(std::int64_t megabytes);

struct MemoryVerdict {
  std::int64_t needed = 0, available = 0;  // bytes; available negative: unknown, and then it fits
  struct Remedy {
    std::string options;  // command line options: "--micro-batch 1 --checkpoint-activations"
    std::int64_t needed = 0;
  };
  std::vector<Remedy> remedies;  // changes that make it fit, the smallest first; empty if it fits or none was found
  bool fits() const { return available < 0 || needed <= available; }
  std::int64_t missing() const { return fits() ? 0 : needed - available; }
};

// `needed` is the program's memory plus the larger of reading the model (fp32 weights beside the compute copy) and of the steps, over all ranks.
// Errors: those of plan_training and plan_serving.
MemoryVerdict judge_training(const RuntimeSettings& settings, const TrainingPlan& plan, const AvailableMemory& memory);
// `needed` is the least --memory-megabytes (least_serving_memory). A given cache size (`plan.engine.cache_bytes`) stays; 0: what the plan's
// sequences take.
MemoryVerdict judge_serving(const RuntimeSettings& settings, const ServingPlan& plan, const ServingMemoryOptions& options, const AvailableMemory& memory);

// Positions of the longest sequence that a plan may have: --context, or the model's.
std::int64_t planned_context(const RuntimeSettings& settings);
// The plan with a cache that holds all its sequences at once, where no cache is given.
ServingPlan with_cache(ServingPlan plan);

}  // namespace lockstep
