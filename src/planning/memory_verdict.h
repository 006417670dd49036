// Whether a plan fits into memory, by how much not, and what would make it fit: the other plans are counted too, so what is named does fit.
//   const MemoryVerdict verdict = judge_training(settings, plan, memory_for_training(0)); if (!verdict.fits()) ...
#pragma once
#include <string>
#include <vector>

#include "planning/memory_plan.h"
#include "planning/serving_memory.h"

namespace lockstep {

// What may be taken, and what that is of.
struct AvailableMemory {
  std::int64_t bytes = 0;  // negative: nobody knows
  std::string what;        // "80% of 22000.0 MB that are free here (MemAvailable)"
};
// `megabytes` 0: of what is free here, for a server kMemoryPercent of it.
AvailableMemory memory_for_training(std::int64_t megabytes);
AvailableMemory memory_for_serving(std::int64_t megabytes);

struct MemoryVerdict {
  std::int64_t needed = 0, available = 0;  // bytes; available negative: nobody knows, and then it fits
  struct Remedy {
    std::string options;                   // as the command line takes them: "--micro-batch 1 --checkpoint-activations"
    std::int64_t needed = 0;
  };
  std::vector<Remedy> remedies;            // that fit, the least change first; none where it fits, or where none was found
  bool fits() const { return available < 0 || needed <= available; }
  std::int64_t missing() const { return fits() ? 0 : needed - available; }
};

// needed: the most at one time of reading the model (its fp32 weights beside what is computed with) and of the steps, all ranks, and
// the program. Errors: those of plan_training and plan_serving.
MemoryVerdict judge_training(const RuntimeSettings& settings, const TrainingPlan& plan, const AvailableMemory& memory);
// needed: what --memory-megabytes must be at least (least_serving_memory). A cache that is given (`plan.engine.cache_bytes`) stays; 0: what
// the plan's sequences take.
MemoryVerdict judge_serving(const RuntimeSettings& settings, const ServingPlan& plan, const ServingMemoryOptions& options, const AvailableMemory& memory);

// Positions of the longest sequence that a plan may have: --context, or the model's.
std::int64_t planned_context(const RuntimeSettings& settings);
// The plan with a cache that holds all its sequences at once, where no cache is given.
ServingPlan with_cache(ServingPlan plan);

}  // namespace lockstep
