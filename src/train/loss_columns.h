// What the head is given of one micro-batch: a column a target for every input of the loss, weights divided by the normaliser, and
// ratios of whole sequences once the log-probabilities are known. Owns the buffers; one micro-batch.
//   LossColumns columns(device, data, plan, loss, normaliser);
//   if (columns.needs_logprobs()) columns.set_logprobs(scored); head.target = columns.target(); head.objective = columns.objective();
#pragma once
#include <map>

#include "kernels/backend.h"
#include "train/micro_batch.h"

namespace lockstep {

// What weights are divided by over the whole call (LossAveraging): the loss's normaliser, or counted. 0: nothing is trained. Error
// invalid_argument where weights cancel or outweigh each other, and token_mean would divide by their sum.
double loss_normaliser(const std::vector<TrainSequence>& data, const LossOptions& loss);
// What those of one sequence are divided by besides.
double sequence_divisor(const TrainSequence& d, const LossOptions& loss);
// Sum over the sequence's targets that count in ratios of (log-probability - anchor), and their number. Order-free.
struct SequenceRatio {
  double sum = 0;
  std::int64_t count = 0;
  double at(RatioLevel level) const { return level == RatioLevel::sequence_product ? sum : count > 0 ? sum / static_cast<double>(count) : 0.0; }
};
SequenceRatio sequence_ratio(const TrainSequence& d, const std::vector<float>& logprobs, const std::vector<float>& anchor);

class LossColumns {
 public:
  LossColumns(Device& device, const std::vector<TrainSequence>& data, const RowPlan& plan, const LossOptions& loss, double normaliser);

  std::int64_t targets_per_row() const { return width_; }
  const std::vector<std::int32_t>& targets() const { return targets_; }  // [rows * targets_per_row]
  const View& target() const { return target_.view(); }
  const Objective& objective() const { return objective_; }
  bool entropy_bonus() const { return objective_.kind != LossKind::none && objective_.parameters.entropy_coefficient != 0.0f; }
  // Whether ratios of sequences are used that need the current log-probabilities: the head is run once to score, then set_logprobs.
  bool needs_logprobs() const { return ratios_of_sequences_; }
  void set_logprobs(const std::vector<float>& logprobs);  // [rows * targets_per_row]

 private:
  template <class F>
  void column(View Objective::*view, const F& of);  // of(sequence) -> its values, or empty
  // A value a sequence, for all its targets.
  void sequence_column(View Objective::*view, const std::vector<float>& values);

  Device& device_;
  const std::vector<TrainSequence>& data_;
  const RowPlan& plan_;
  const LossOptions& loss_;
  std::int64_t rows_ = 0, width_ = 1;
  bool ratios_of_sequences_ = false;
  std::vector<std::int32_t> targets_;
  Buffer target_;
  std::vector<Buffer> buffers_;
  Objective objective_;
};

}  // namespace lockstep
