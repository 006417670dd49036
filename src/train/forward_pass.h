// Runs one micro-batch through the model: plans rows, runs model, head and losses, with a gradient also the backward, and reads results back. Several
// jobs may share a pass, each with its own data, loss and adapter over the same weights; a job's bits are those it has alone. The cache is reused
// between passes. Knows no optimizer. One thread at a time.
//   ForwardPass pass(runtime, {.page_size = 16}); pass.run(weights, settings, {{&data, &loss, normaliser, part, &result, &sums}});
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "base/error.h"
#include "kernels/head/head.h"
#include "model/adapter_rows.h"
#include "model/kept_forwards.h"
#include "model/runtime.h"
#include "train/micro_batch.h"
#include "train/options.h"

namespace lockstep {

class DealtRows;
class GatheredWeights;
class KeptForward;
class LeavingGradients;
struct RowSums;

class ForwardPass {
 public:
  // `sharding` null: this rank has the whole model. `context`: the ranks that have pieces of the same sequences; null: there are none.
  ForwardPass(Runtime& runtime, const TrainerOptions& options, const Sharding* sharding = nullptr, Communicator* context = nullptr);

  struct Settings {
    bool gradient = false;
    GradientSet* gradients = nullptr;  // of the weights; null with `gradient`: they are frozen
    const std::vector<Buffer>* router_loads = nullptr;
    IndexTraining index;
    double index_weight = 0;  // of one row
    bool keep = false;        // without a gradient, single job: keeps the forward for a backward that may be asked for next (kept_passes.h)
    // The weights are its whole(): all data-parallel ranks run as many passes, of which some may be idle. Null: each has all weights.
    GatheredWeights* gathered = nullptr;
    LeavingGradients* leaving = nullptr;  // gradients that no later pass adds to: the last pass sends them on, a segment at a time. Null: they stay
  };
  struct Job {
    const std::vector<TrainSequence>* data = nullptr;
    const LossOptions* loss = nullptr;
    double normaliser = 1;
    std::vector<std::size_t> part;            // sequences of the data that are in this pass
    ForwardBackwardResult* result = nullptr;  // one entry a sequence of the data; those of `part` are filled
    RowSums* sums = nullptr;
    const AdapterWeights* adapter = nullptr;  // null: the weights alone
    GradientSet* adapter_gradients = nullptr;
    std::optional<Error>* failure = nullptr;  // receives the job's own error, so that others keep their results; null: thrown
    bool cut = false;                         // its one sequence is cut, and this rank has pieces of it; the pass has no other job
    // The ranks that share experts have rows of their own, and run the pass together, with `part` empty where this one has none; the pass has no other job.
    std::shared_ptr<const DealtRows> dealt = nullptr;
    KeptForwards::Root kept = {};  // under what its rows may be kept: the whole weights, the whole adapter, and whose
  };
  // Errors numeric: a value that is not finite, with the sequence and the token.
  void run(const WeightSet& weights, const Settings& settings, const std::vector<Job>& jobs);
  // Pass after pass, of the jobs that jobs_of(i) has (none: it is left out, or idle). The passes of a stage of a pipeline go in turns with its neighbours
  // (forward_stage.cpp), and all its replica's stages call with the same jobs; results come to the last one, and of what is not finite each is told.
  using JobsOf = std::function<std::vector<Job>(std::size_t pass)>;
  void run(const WeightSet& weights, const Settings& settings, std::size_t passes, const JobsOf& jobs_of);
  // Work counts of all forwards so far, on this rank. The expected counts are those of all heads and experts.
  const ForwardCounts& work() const { return work_; }

 private:
  struct JobRows;
  struct Pass;
  // All that a forward needs; with a tape where a backward may follow.
  std::unique_ptr<Pass> prepare(const WeightSet& weights, const Settings& settings, const std::vector<Job>& jobs, bool keep);
  JointPlan plan_of(const std::vector<Job>& jobs) const;
  void give_back(Pass& pass);
  void forward(Pass& pass);
  // Heads and losses, and the backward.
  void finish(Pass& pass, const Settings& settings, const std::vector<Job>& jobs);
  // The gradient of the hidden states; none without a gradient, and where nothing needs it.
  Buffer run_heads(Pass& pass, const Settings& settings, const std::vector<Job>& jobs);
  bool through_head(const Settings& settings) const;
  static void backward(Pass& pass, const Buffer& dx);
  void deposit_head(Pass& pass, const Settings& settings);
  void read_results(Pass& pass, const std::vector<Job>& jobs);
  static void check_finite(const JobRows& rows, const Batch& batch, const std::vector<std::int32_t>& flags);
  void run_stage(const WeightSet& weights, const Settings& settings, std::size_t passes, const JobsOf& jobs_of);
  bool joins_tied(const Settings& settings) const;
  void join_tied(const std::vector<std::unique_ptr<Pass>>& passes, const Settings& settings);
  // What earlier forwards kept of the pass's rows, with the others computed; null: it is to compute all.
  std::unique_ptr<KeptForward> kept_forward(const WeightSet& weights, const Settings& settings, const std::vector<Job>& jobs, const Pass& pass, bool taped);
  // The forward of the rows that were not found. False: something in it is not finite.
  bool compute_missing(const WeightSet& weights, const std::vector<Job>& jobs, KeptForward& kept, bool share);
  // The kept forward of the same rows, or null.
  std::unique_ptr<Pass> kept_before(const WeightSet& weights, const Settings& settings, const std::vector<Job>& jobs);
  void add_router_loads(const Pass& pass, const Settings& settings);
  void run_head(Context& context, const HeadLoss& all, const Job& job, JobRows& rows, const std::vector<AdapterRows>& adapters, const Batch& batch);
  std::vector<float> whole_logprobs(Context& context, const View& logprobs);
  void run_values(Context& context, const HeadLoss& all, const Job& job, JobRows& rows, const std::vector<AdapterRows>& adapters, const Batch& batch);
  void keep(const Job& job, const JobRows& rows, const Batch& batch);

  Runtime& runtime_;
  TrainerOptions options_;
  const Sharding* sharding_;
  Communicator* context_;
  std::unique_ptr<KvCache> cache_;
  ForwardCounts work_;
  double bytes_a_row_ = 0;  // the least over kept forwards
};

// The finished gradient of a table that is input embedding and head, from the last stage of a pipeline, where it is made, to the first, which has the
// table too: both step it alike. All ranks call together.
void share_tied_gradient(const Sharding& sharding, Backend& backend, GradientSet& gradients, ParameterId head);

}  // namespace lockstep
