// What one rank does in a training step: the bytes of every exchange, the memory, and the work, from the model's dimensions alone.
//   const RankStep step = plan_step(model, profile, {.sequences = data, .trainer = {.ranks = layout}}, rank);
// The trainer itself runs, on a backend that computes nothing and with nobody on the other side of an exchange (parallel/counted_rank.h), so the
// exchanges equal the counters of a real step exactly. The work is counted by formulas over the rank's own share. No weights are read.
#pragma once
#include "model/adapter.h"
#include "model/model.h"
#include "parallel/exchange_counts.h"
#include "planning/memory_plan.h"
#include "train/data.h"

namespace lockstep {

struct StepPlan {
  std::vector<TrainSequence> sequences;         // of the step; their tokens' values do not matter
  TrainerOptions trainer;                       // with the layout
  std::optional<AdapterSettings> adapter = {};  // an adapter is trained, and the weights stay as they are
  AdamParameters adam;
  bool processes = false;  // the ranks are processes, which hold what is on its way while they compute (train/leaving_gradients.h); else threads
};

// Additions and multiplications, 2 each product, and bytes of memory that pass. Rows of experts are those of a balanced router.
struct RankWork {
  std::int64_t tokens = 0;       // of this rank's sequences
  double forward = 0;            // matrices, attention and index scores
  double backward = 0;           // recomputed forwards included
  double experts = 0;            // of forward: the experts' part
  double weight_bytes = 0;       // of compute copies, read once a micro-batch and pass
  int backward_passes = 1;       // 2: the forward is recomputed
  double batches = 1;            // micro-batches of a step
  double accumulator_bytes = 0;  // read and written once a micro-batch, where gradients have them
  double optimizer_bytes = 0;    // of this rank's rows
  double turns = 1;              // of a stage of a pipeline: forward and backward take so many times its own (m micro-batches, p stages: (m + p - 1) / m)
  double arithmetic() const { return forward + backward; }
};

struct RankStep {
  int rank = 0;
  RankExchanges exchanges;  // received in one step
  MemoryPlan memory;
  RankWork work;
};

// Errors: those of making the trainer and of its checks of data.
RankStep plan_step(const std::shared_ptr<const Model>& model, const Profile& profile, const StepPlan& plan, int rank);
// Only the work, computed from formulas; no trainer runs. Of one rank, and of all.
RankWork work_of(const Model& model, const Profile& profile, const StepPlan& plan, int rank);
std::vector<RankWork> works_of(const Model& model, const Profile& profile, const StepPlan& plan);

}  // namespace lockstep
