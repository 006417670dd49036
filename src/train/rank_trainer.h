// One rank's part of a trainer (train/trainer.h): the sequences that fall to it, and its share of gradients, masters and moments.
// All ranks make the same calls with the same data, each on a thread and a runtime of its own; with one rank this is the trainer.
// Bits do not depend on the ranks: gradients are order-free accumulators, joined exactly, and a step works on elements alone.
//   RankTrainer trainer(runtime, images, options, place); trainer.open(call, true, {}); trainer.deposit(call, data, result, sums);
//   trainer.close(); trainer.optim_step(adam);
#pragma once
#include <memory>

#include "train/forward_pass.h"
#include "train/gradients.h"
#include "train/router_loads.h"

namespace lockstep {

struct RowSums;

// What all sequences of a gradient have in common.
struct GradientCall {
  LossOptions loss;
  IndexTraining index;
  double normaliser = 1;
  double index_weight = 0;  // of one row
};

class RankTrainer {
 public:
  // `masters`: of the whole model.
  RankTrainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, const RankPlace& place);

  // check_data (train/data.h). Ranks are given what has passed it.
  void check(const std::vector<TrainSequence>& data, const LossOptions& loss, bool index_loss) const {
    check_data(runtime_, data, loss, index_loss, options_.declared_prefixes);
  }
  // Begins a gradient, which comes in one piece or in several; then deposit() of each piece, and close(). Results and row sums of a
  // piece are those of all data-parallel ranks. `held`: the piece, where it may have to be taken once more (Gradients); null: none was.
  void open(const GradientCall& call, bool one_piece, const std::shared_ptr<const std::vector<TrainSequence>>& held);
  void deposit(const GradientCall& call, const std::vector<TrainSequence>& piece, ForwardBackwardResult& result, RowSums& sums);
  void close() { gradients_.close(); }
  void abandon_gradients() { gradients_.abandon(); }
  const Gradients& gradients() const { return gradients_; }
  // Whether a gradient in so many pieces is one backward on this rank and all there is of it.
  bool one_backward(bool one_piece) const { return one_piece && options_.micro_batch == 0 && rows_.place().layout.dp == 1; }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data);
  // The loss of a part of a batch, without a gradient.
  void evaluate(const GradientCall& call, const std::vector<TrainSequence>& piece, ForwardBackwardResult& result, RowSums& sums);
  OptimResult optim_step(const AdamParameters& adam);

  const std::shared_ptr<const WeightSet>& weights() const { return weights_; }
  OptimizerState& state() { return state_; }
  const OptimizerState& state() const { return state_; }
  const TrainerOptions& options() const { return options_; }
  const ForwardCounts& work() const { return pass_.work(); }  // of this rank
  // Null: this rank has the whole model.
  const Sharding* sharding() const { return sharding_.get(); }
  // Of this rank's share of the model; filled where the data-parallel rank is 0.
  WeightImages gradient_images();
  void restore(const TrainerState& state);  // of the whole model

 private:
  // run(numbers of the sequences of one micro-batch), of this rank's sequences; then the results of all ranks are joined.
  template <class F>
  void for_each_micro_batch(const std::vector<TrainSequence>& data, ForwardBackwardResult& result, RowSums& sums, std::vector<std::size_t>* dealt_before,
                            const F& run);
  void publish();
  OptimizerState initial_state(const WeightImages& masters);

  Runtime& runtime_;
  TrainerOptions options_;
  std::unique_ptr<const Sharding> sharding_;  // null: this rank has the whole model
  RankRows rows_;
  ForwardPass pass_;
  RouterLoads router_loads_;
  std::shared_ptr<const WeightSet> weights_;
  Gradients gradients_;
  OptimizerState state_;
  std::vector<std::size_t> dealt_tokens_;  // to each data-parallel rank, since open()
};

}  // namespace lockstep
