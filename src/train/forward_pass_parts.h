// What a pass of train/forward_pass.h holds between its forward and its backward. For its own files alone.
#pragma once
#include <optional>

#include "kernels/head/head.h"
#include "model/context_pieces.h"
#include "train/forward_pass.h"
#include "train/gathered_weights.h"
#include "train/kept_forward.h"
#include "train/kept_passes.h"
#include "train/loss_columns.h"

namespace lockstep {

// deposit() of the head's gradient. Where ranks keep shares of the weights (`gathered` not null) the head's is whole for it, and the gradient leaves then.
template <class F>
void with_head(GatheredWeights* gathered, const F& deposit) {
  if (gathered) gathered->use_head();
  deposit();
  if (gathered) gathered->leave_head();
}

// One job's part of a pass: its rows, and the head's inputs and outputs for them.
struct ForwardPass::JobRows {
  RowPlan plan;                     // of the job alone
  std::size_t first_slice = 0;      // in the batch
  std::int64_t begin = 0, end = 0;  // rows of the tape
  std::optional<LossColumns> columns;
  Buffer logprob, entropy, loss, marks, log_sum, slope, entropy_slope;
  std::int64_t count() const { return end - begin; }
  // Clears the head's inputs and outputs, so that it can run again.
  void clear_head() {
    columns.reset();
    for (Buffer* b : {&logprob, &entropy, &loss, &marks, &log_sum, &slope, &entropy_slope}) *b = Buffer();
  }
};

// A forward and everything its backward reads. It does not move: records of the tape point into it.
struct ForwardPass::Pass : KeptPass {
  std::vector<JobRows> rows;
  std::unique_ptr<KvCache> cache;
  std::optional<ContextPieces> pieces;     // the rows are pieces of one sequence
  std::shared_ptr<const DealtRows> dealt;  // of Job
  std::unique_ptr<const Batch> batch;
  std::vector<AdapterRows> adapters;
  std::vector<Buffer> router_loads;   // of a kept forward: added to the loads when its backward runs
  std::unique_ptr<KeptForward> kept;  // null: the pass computes all its rows
  std::optional<Tape> tape;
  std::optional<Context> context;
  Tensor hidden;
  View row_flags;
  HeadLoss head;          // the head's inputs, of all rows
  StageInput stage;       // of a pipeline's stage that is not the first
  Buffer table_gradient;  // of a tied table's rows (Tape::take_table_gradient), until the head's gradient is deposited
  Buffer gathered_flags;  // where row_flags had to be gathered
  ForwardCounts asked;    // expected work counts, from lengths
};

}  // namespace lockstep
