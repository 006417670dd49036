// How much memory training or serving takes, before it is tried: the trainer and the engine themselves run on a backend that counts
// and computes nothing (BackendKind::counting), so that a plan is what the accounts would say. Needs config.json alone.
//   const MemoryPlan plan = plan_training({.model = "model/config.json"}, {.sequences = 4, .length = 256})[0];
#pragma once
#include <array>
#include <string>
#include <vector>

#include "engine/options.h"
#include "serving/loading.h"
#include "tensor/memory.h"
#include "train/options.h"

namespace lockstep {

struct MemoryPlan {
  std::array<std::int64_t, kMemoryCategories> peak{};  // bytes, the most that each category holds
  std::int64_t total = 0;                              // the most of all at one time
  std::int64_t parameters = 0;                         // trained ones of the whole model
};
// What a device's accounts say so far.
MemoryPlan memory_of(const MemoryAccounts& memory);

struct TrainingPlan {
  std::int64_t sequences = 4, length = 256;
  TrainerOptions trainer;
};
struct ServingPlan {
  std::int64_t sequences = 8, length = 1024;  // running at a time; tokens of each, prompt and answer
  EngineOptions engine;
};

// The model of `settings.model`, a folder or a config.json; no weights are read. Errors: those of reading it.
std::shared_ptr<const Model> planned_model(const RuntimeSettings& settings);

// A plan a rank of settings.ranks, which replaces the ranks of `what`. `settings.model`: a model folder or a config.json. Errors: those
// of reading it; invalid_argument (a length beyond the context). dp is training's alone.
std::vector<MemoryPlan> plan_training(const RuntimeSettings& settings, const TrainingPlan& what);
std::vector<MemoryPlan> plan_serving(const RuntimeSettings& settings, const ServingPlan& what);

}  // namespace lockstep
