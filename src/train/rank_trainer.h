// One rank's part of a trainer (train/trainer.h): the sequences that fall to it, its share of gradients, masters and moments.
// All ranks make the same calls with the same data, each on a thread and a runtime of its own; with one rank this is the trainer.
// Bits do not depend on the ranks: gradients are order-free accumulators, joined exactly, and a step works on elements alone.
//   RankTrainer trainer(runtime, images, options, place); trainer.forward_backward(data, loss, {}); trainer.optim_step(adam);
#pragma once
#include <memory>

#include "model/parameter_share.h"
#include "model/runtime.h"
#include "model/state_part.h"
#include "parallel/rank_place.h"
#include "train/forward_pass.h"

namespace lockstep {

class FileMemory;
struct RowSums;

class RankTrainer {
 public:
  // `masters`: of the whole model.
  RankTrainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, const RankPlace& place);
  ~RankTrainer();
  RankTrainer(const RankTrainer&) = delete;
  RankTrainer& operator=(const RankTrainer&) = delete;

  // check_data (train/data.h). Ranks are given what has passed it.
  void check(const std::vector<TrainSequence>& data, const LossOptions& loss, bool index_loss) const {
    check_data(runtime_, data, loss, index_loss, options_.declared_prefixes);
  }
  // Error internal when gradients stand that no step has taken, and calls do not accumulate.
  void check_may_begin() const;
  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index);
  // The same in pieces: open_gradients, deposit of each piece, close_gradients. Results and row sums of a piece are those of all
  // data-parallel ranks. `index_weight`: of one row.
  // `alone`: one piece, and no other gradient before the step.
  void open_gradients(bool alone);
  void deposit(const std::vector<TrainSequence>& piece, const LossOptions& loss, const IndexTraining& index, double normaliser, double index_weight,
               ForwardBackwardResult& result, RowSums& sums);
  void close_gradients();
  // After an error: no gradient is there, as after an optim_step.
  void abandon_gradients();
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data, bool alone);
  // The loss of a part of a batch, without a gradient.
  void evaluate(const std::vector<TrainSequence>& piece, const LossOptions& loss, double normaliser, ForwardBackwardResult& result, RowSums& sums);
  OptimResult optim_step(const AdamParameters& adam);

  const std::shared_ptr<const WeightSet>& weights() const { return weights_; }
  std::int64_t step() const { return step_; }
  const TrainerOptions& options() const { return options_; }
  const ForwardCounts& work() const { return pass_.work(); }  // of this rank
  // Null: this rank has the whole model.
  const Sharding* sharding() const { return sharding_.get(); }
  // Of this rank's share of the model; filled where the data-parallel rank is 0.
  WeightImages gradient_images();
  WeightImages master_images();
  WeightImages first_moment_images() { return moment_images(first_moments_); }
  WeightImages second_moment_images();  // of what Muon steps: zeros
  // One parameter's, as in the images above; empty: it has none.
  std::vector<float> state_image(StatePart part, std::size_t i);
  bool has_state(StatePart part, std::size_t i) const { return part == StatePart::master || first_moments_[i]; }
  void restore(const TrainerState& state);  // of the whole model

 private:
  // run(numbers of the sequences of one micro-batch), of this rank's sequences; then the results of all ranks are joined.
  template <class F>
  void for_each_micro_batch(const std::vector<TrainSequence>& data, ForwardBackwardResult& result, RowSums& sums, std::vector<std::size_t>* dealt_before,
                            const F& run);
  void run_micro_batch(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, const LossOptions& loss, double normaliser,
                       double index_weight, const IndexTraining& index, bool gradient, ForwardBackwardResult& result, RowSums& sums);
  bool keeps() const;  // forwards of score(), for a gradient
  bool moves(const Parameter& parameter) const { return parameter.trained && (!parameter.indexer || options_.train_indexer); }
  // Whether Muon steps it: a matrix that is neither embedding nor head.
  bool muon_steps(std::size_t i) const;
  bool shared_out(std::size_t i) const;  // whether data-parallel ranks share the parameter's optimizer state
  // Of what several ranks hold alike, one is counted.
  bool answers_for(std::size_t i) const { return !sharding_ || sharding_->answers_for(static_cast<ParameterId>(i)); }
  std::pair<std::int64_t, std::int64_t> own_shape(std::size_t i) const;
  Buffer allocate_rows(std::size_t i, MemoryCategory category);
  // fp32 values that only a step touches: in the optimizer's file, where there is one.
  Buffer allocate_state(std::size_t i, MemoryCategory category);
  void reserve_state_file();
  // Around the use of a parameter's state in the file, where it leaves memory (TrainerOptions::release_state).
  void fetch_state(std::size_t i);
  void leave_state(std::size_t i);
  void advise_state(std::size_t i, void (FileMemory::*advice)(std::size_t, std::size_t) const);
  bool separate_master(std::size_t i) const { return compute_dtype(manifest_.parameters()[i], runtime_.profile) != DType::f32; }
  void write_rows(std::size_t i, const View& view, const std::vector<float>& image);
  View master(std::size_t i) const;      // this rank's rows of it
  // Whether gradients come in several parts: from more than one backward, or rank. `alone`: of one call and one piece.
  bool several_parts(bool alone) const { return !alone || options_.micro_batch > 0 || place_.layout.dp > 1; }
  // Whether a new set was made, which is empty.
  bool use_bins(bool bins);
  void drop_kept();  // passes of weights that are not these any more
  void upload_masters(const WeightImages& masters);
  void finish_gradients();
  Buffer gradient_norm();
  std::vector<std::pair<std::string, double>> group_norms(double scale);
  void move_router_bias(std::size_t layer, double rate, WeightSet& next);
  void gather_rows(std::size_t i, const View& whole);
  std::vector<float> image(std::size_t i, const View& rows);
  WeightImages moment_images(const std::vector<Buffer>& moments);

  Runtime& runtime_;
  TrainerOptions options_;
  RankPlace place_;
  std::unique_ptr<const Sharding> sharding_;  // null: this rank has the whole model
  const Manifest& manifest_;
  ForwardPass pass_;
  std::vector<ParameterShare> shares_;
  std::shared_ptr<FileMemory> state_file_;
  struct StateBlock {
    std::size_t begin = 0, bytes = 0;
  };
  std::vector<std::vector<StateBlock>> state_blocks_;  // of each parameter, in the file
  // Of this rank's rows; a master in fp32 is the compute copy itself, which is whole.
  std::vector<Buffer> masters_, first_moments_, second_moments_;
  std::vector<Buffer> router_loads_;
  bool bins_ = false;  // whether gradients_ has accumulators
  std::unique_ptr<GradientSet> gradients_;  // null: no gradient, and no accumulator, until open_gradients
  std::vector<std::size_t> dealt_tokens_;  // to each data-parallel rank, since open_gradients
  std::shared_ptr<const WeightSet> weights_;
  std::int64_t step_ = 0;
  int pending_calls_ = 0;
};

}  // namespace lockstep
