// The head's inputs for one micro-batch: one value per target for each input of the loss, weights divided by the normaliser, and
// sequence-level ratios once the log-probabilities are known.
//   LossColumns columns(device, data, plan, loss, normaliser, vocabulary);
//   if (columns.needs_logprobs()) columns.set_logprobs(scored); head.target = columns.target(); head.objective = columns.objective();
// Owns the buffers; one micro-batch.
#pragma once
#include <map>

#include "kernels/backend.h"
#include "kernels/head/objective.h"
#include "kernels/head/row_distribution.h"
#include "kernels/head/teacher.h"
#include "train/micro_batch.h"

namespace lockstep {

// The divisor of weights over the whole call (LossAveraging): the loss's normaliser, or counted. 0: nothing is trained. Error
// invalid_argument when token_mean would divide by a sum of weights that is 0 or negative.
double loss_normaliser(const std::vector<TrainSequence>& data, const LossOptions& loss);
// The additional divisor of one sequence's weights.
double sequence_divisor(const TrainSequence& d, const LossOptions& loss);
// Sum of (log-probability - anchor) over the sequence's targets that count in ratios, and their number. Order-free.
struct SequenceRatio {
  double sum = 0;
  std::int64_t count = 0;
  double at(RatioLevel level) const { return level == RatioLevel::sequence_product ? sum : count > 0 ? sum / static_cast<double>(count) : 0.0; }
};
SequenceRatio sequence_ratio(const TrainSequence& d, const std::vector<float>& logprobs, const std::vector<float>& anchor);

class LossColumns {
 public:
  LossColumns(Device& device, const std::vector<TrainSequence>& data, const RowPlan& plan, const LossOptions& loss, double normaliser, std::int64_t vocabulary);

  std::int64_t targets_per_row() const { return width_; }
  const std::vector<std::int32_t>& targets() const { return targets_; }  // [rows * targets_per_row]
  const View& target() const { return target_.view(); }
  const Objective& objective() const { return objective_; }  // of the loss `value`: returns as advantages, values as old log-probabilities
  const RowDistribution& distribution() const { return distribution_; }
  const HeadTeacher& teacher() const { return teacher_; }  // of the loss divergence, without a chunk for its logits; else none
  bool entropy_bonus() const { return objective_.kind != LossKind::none && objective_.parameters.entropy_coefficient != 0.0f; }
  // Whether ratios of sequences are used that need the current log-probabilities: the head is run once to score, then set_logprobs.
  bool needs_logprobs() const { return ratios_of_sequences_; }
  void set_logprobs(const std::vector<float>& logprobs);  // [rows * targets_per_row]
  // The same where the slices are pieces of one sequence, from all its rows.
  void set_whole_logprobs(const std::vector<float>& logprobs);

 private:
  void make_distribution(std::int64_t vocabulary);
  void make_teacher();
  template <class F>
  void column(View Objective::*view, const F& of);  // of(sequence) -> its values, or empty
  // The ratio and the correction of one sequence, from its log-probabilities.
  std::pair<float, float> ratios_of(const TrainSequence& d, const std::vector<float>& logprobs) const;
  void set_ratios(const std::vector<float>& ratios, const std::vector<float>& corrections);
  // A value per sequence, for all its targets.
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
  RowDistribution distribution_;
  HeadTeacher teacher_;
};

}  // namespace lockstep
