// Losses that the trainer's fused head does not compute, as functions of log-probabilities: preferences (losses/preference_losses.h), distillation
// (losses/distillation.h), and losses that clients trace (losses/custom_loss.h). A piece of a batch is scored, the loss returns weights
// -dLoss/dlogprob, and the weighted cross-entropy then has the loss's gradient (host/batch_loss_operation.cpp).
//   if (is_batch_loss(name)) { PreparedBatch prepared; auto loss = make_batch_loss(batch, limits, prepared); loss->weigh(prepared, 0, logprobs); }
#pragma once
#include <memory>
#include <span>

#include "host/loss_inputs.h"

namespace lockstep {

class CustomLoss;

class BatchLoss {
 public:
  virtual ~BatchLoss() = default;
  // Data that are one thing and stand in one piece: a pair.
  virtual std::size_t together() const { return 1; }
  // Weights of data[first ...], of these log-probabilities. Errors name the datum.
  virtual void weigh(PreparedBatch& prepared, std::size_t first, std::span<const std::vector<float>> logprobs) = 0;
  // Of all that was weighed: "loss:sum" and others.
  virtual std::map<std::string, double> metrics() const = 0;
};

// By name, beside losses by name (train/losses.h) and "custom".
bool is_batch_loss(const std::string& name);
inline constexpr const char kDistillLoss[] = "distill";
inline constexpr const char kPairwiseRewardLoss[] = "pairwise_reward";  // of a critic, over pairs: a reward model's
std::vector<std::string> batch_loss_names();                            // without a critic's
// The loss is none that a critic, or a model that is none, has. Errors: unsupported for one that the other has; else invalid_argument.
[[noreturn]] void refuse_loss(const std::string& name, bool critic);
// What the trainer takes of the batch is `prepared`. Errors invalid_argument and unsupported: those of prepare_batch; an option that the loss lacks or that
// is not allowed; an input that is missing; an odd number of data of a loss over pairs.
std::unique_ptr<BatchLoss> make_batch_loss(const TrainingBatch& batch, const BatchLimits& limits, PreparedBatch& prepared);
// `batch` outlives it.
std::unique_ptr<BatchLoss> make_custom_batch_loss(const TrainingBatch& batch, std::shared_ptr<const CustomLoss> loss, const BatchLimits& limits,
                                                  PreparedBatch& prepared);

}  // namespace lockstep
