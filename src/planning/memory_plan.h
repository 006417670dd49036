// Computes how much memory training or serving will take, from config.json alone.
//   const MemoryPlan plan = plan_training({.model = "model/config.json"}, {.sequences = 4, .length = 256})[0];
// The trainer and the engine themselves run on a backend that counts memory and computes nothing (BackendKind::counting), so a plan equals
// the accounts of a real run.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "engine/options.h"
#include "parallel/planned_layout.h"  // layouts that plans are of
#include "serving/keep_forward.h"
#include "serving/loading.h"
#include "tensor/memory.h"
#include "train/options.h"

namespace lockstep {

struct MemoryPlan {
  std::array<std::int64_t, kMemoryCategories> peak{};  // bytes, the most that each category holds
  std::int64_t total = 0;                              // the most of all at one time
  std::int64_t parameters = 0;                         // trained ones of the whole model
};
// The plan of a device's accounts so far.
MemoryPlan memory_of(const MemoryAccounts& memory);
// The plan of two models on one device that work in turn: the peak of each while the other holds what it holds now. `plan.parameters` is kept.
MemoryPlan memory_beside(const MemoryPlan& plan, const MemoryAccounts& memory, const MemoryAccounts& other);

struct TrainingPlan {
  std::int64_t sequences = 4, length = 256;
  TrainerOptions trainer;
  // A critic beside the model: the same model with a value head, trained on the same sequences before each step (docs/rl.md, "A critic"). "none";
  // "full": all its weights are trained; "adapter": an adapter over frozen ones. It keeps the forward of its values as a run does (kept_by_steps), unless
  // trainer.kept says how much it may.
  std::string critic = "none";
  std::int64_t critic_rank = 8;
  // A model beside it, named as the model is, whose distribution over the whole vocabulary is learned as `train distill --over vocabulary` does; empty: none.
  std::string teacher = {};
  // The layer of multi-token prediction that is trained beside the model so many tokens ahead, by its cross-entropy (train/mtp_trainer.h), the model's own or
  // a new one; 0: it is not trained.
  std::int64_t mtp_depths = 0;
  // What an engine keeps of its forwards of all sequences for this trainer, as far as its memory goes, beside a step that computes everything: one that reads
  // takes less. Over several ranks the first one has it; nothing is counted where nothing is kept (keeps_over).
  KeepForwardSettings keep_forward = {};
  // Sequences of `length` that a sampler beside it has at a time, as `train rl` has one: its own copy of the weights, and their keys and values. 0: none.
  // Of one rank alone.
  std::int64_t rollouts = 0;
};
struct ServingPlan {
  std::int64_t sequences = 8, length = 1024;  // running at a time; tokens of each, prompt and answer
  EngineOptions engine;
};

// Prefix of a model of the catalog of training shapes ("catalog:qwen3-8b"), where other models are named by folder or file.
inline const std::string kCatalogModel = "catalog:";
// The name with that prefix if `model` is no file and the catalog knows it by any name; else `model` itself. Error unsupported: its family does not
// run here.
std::string planned_name(const std::string& model);
// Its config.json. Errors: those of reading it.
Json planned_config(const RuntimeSettings& settings);
// The model of `settings.model`, a folder, a config.json or a planned_name(); no weights are read. Errors: those of reading it.
std::shared_ptr<const Model> planned_model(const RuntimeSettings& settings);

// One plan per rank of settings.ranks, which replaces the ranks of `what`; in training, of a layout of more ranks than a run may have, one for each of
// planned_ranks (parallel/planned_layout.h), as of a process of its own. `settings.model`: a model folder or a config.json. Errors: those of reading it;
// invalid_argument (a length beyond the context, a teacher of another vocabulary); unsupported (a teacher of so few tokens that it tells all their
// log-probabilities, or beside a critic; a layer of multi-token prediction of a family without one, or over more ranks than a run may have). dp is for
// training only.
std::vector<MemoryPlan> plan_training(const RuntimeSettings& settings, const TrainingPlan& what);
std::vector<MemoryPlan> plan_serving(const RuntimeSettings& settings, const ServingPlan& what);
// Memory of one kept row, that of a token; 0: nothing is kept.
std::int64_t kept_row_bytes(const RuntimeSettings& settings, const KeepForwardSettings& keep);

}  // namespace lockstep
