// One rank's part of a trainer (train/trainer.h): its sequences, and its share of gradients, masters and moments.
//   RankTrainer trainer(runtime, images, options, place, false); trainer.open(call, true, {}); trainer.deposit(call, data, result, sums, true);
//   trainer.close(); trainer.optim_step(adam);
// All ranks make the same calls with the same data, each on its own thread and runtime; a single rank is the whole trainer.
// Bits do not depend on ranks: gradients are order-free accumulators, joined exactly, and a step is elementwise.
#pragma once
#include <memory>
#include <optional>

#include "train/forward_pass.h"
#include "train/gathered_weights.h"
#include "train/gradients.h"
#include "train/router_loads.h"
#include "train/sampled_as.h"
#include "train/state_share.h"

namespace lockstep {

struct RowSums;

// Settings shared by all sequences of one gradient.
struct GradientCall {
  LossOptions loss;
  IndexTraining index;
  double normaliser = 1;
  double index_weight = 0;  // of one row
};

class RankTrainer {
 public:
  // `masters`: of the whole model. `moves_meanwhile`: exchanges go on while this rank computes, so gradients leave during a call's last backward.
  RankTrainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, const RankPlace& place, bool moves_meanwhile);

  // check_data (train/data.h). Ranks get only data that passed it.
  void check(const std::vector<TrainSequence>& data, const LossOptions& loss, bool index_loss) const {
    check_data(runtime_, data, loss, index_loss, options_.declared_prefixes);
  }
  // Begins a gradient in one or several pieces; then deposit() each piece, and close(). Results and row sums of a
  // piece are those of all data-parallel ranks. `held`: the piece, if its gradient may have to be recomputed (Gradients); else null. `last`: close() comes
  // next.
  void open(const GradientCall& call, bool one_piece, const std::shared_ptr<const std::vector<TrainSequence>>& held);
  void deposit(const GradientCall& call, const std::vector<TrainSequence>& piece, ForwardBackwardResult& result, RowSums& sums, bool last);
  void close() { gradients_.close(); }
  // One more call of the step, whose backwards the caller runs into these accumulators, while no batch is open; after an error on the way, call
  // abandon_gradients(). All ranks are asked for them, or none. With shard=weights the caller joins what it
  // added before another call begins (RankRows::join). Null: with rows=dealt, or without TrainerOptions::accumulate.
  GradientSet* more_gradients();
  void abandon_gradients();
  // What no step has taken, as Gradients::write and read do it; router loads are part of it, and the data of a call that stands alone.
  void write_gradients(CheckedWriter& file);
  void read_gradients(CheckedReader& file);
  const Gradients& gradients() const { return gradients_; }
  // Whether a gradient is a single backward on this rank; `one_piece`: it is asked for in one piece.
  bool one_backward(bool one_piece) const {
    const RankLayout& layout = rows_.place().layout;
    return one_piece && options_.micro_batch == 0 && layout.data() == 1 && layout.pp == 1;
  }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data);
  // The loss of a part of a batch, without a gradient.
  void evaluate(const GradientCall& call, const std::vector<TrainSequence>& piece, ForwardBackwardResult& result, RowSums& sums);
  OptimResult optim_step(const AdamParameters& adam);

  const std::shared_ptr<const WeightSet>& weights() const { return weights_; }  // what this rank has of them
  SampledAs& sampled_as() { return sampled_as_; }                               // of those weights
  OptimizerState& state() { return state_; }
  const TrainerOptions& options() const { return options_; }
  const ForwardCounts& work() const { return pass_.work(); }  // of this rank
  int rank() const { return rows_.place().rank; }
  // Null: this rank has the whole model.
  const Sharding* sharding() const { return sharding_.get(); }
  // The state of this rank's share of the model; filled on data-parallel rank 0.
  WeightImages gradient_images();
  void restore(const StateReader& read, std::int64_t steps);  // of this rank's share
  StateShare share() { return {state_, rows_, sharding_.get()}; }

 private:
  // Passes over this rank's sequences, a micro-batch each, and then the results of all ranks.
  void run(const ForwardPass::Settings& settings, const std::vector<TrainSequence>& data, const LossOptions& loss, double normaliser,
           ForwardBackwardResult& result, RowSums& sums, std::vector<std::size_t>* dealt_before = nullptr);
  void publish();
  std::function<void()> again(const GradientCall& call, const std::shared_ptr<const std::vector<TrainSequence>>& data);

  Runtime& runtime_;
  TrainerOptions options_;
  RankPlace place_;                           // its own; rows_ has that among the ranks with sequences (train/sequence_place.h)
  std::unique_ptr<const Sharding> sharding_;  // null: this rank has the whole model
  RankRows rows_;
  ForwardPass pass_;
  std::unique_ptr<GatheredWeights> gathered_;  // null: weights_ is all that passes need
  const bool gradients_leave_;                 // during a call's last backward
  RouterLoads router_loads_;
  std::shared_ptr<const WeightSet> weights_;
  SampledAs sampled_as_;
  Gradients gradients_;
  OptimizerState state_;
  std::vector<std::size_t> dealt_tokens_;  // to each data-parallel rank, since open()
  struct Held {
    GradientCall call;
    std::shared_ptr<const std::vector<TrainSequence>> data;
  };
  std::optional<Held> held_;  // the call that may be made once more
};

}  // namespace lockstep
