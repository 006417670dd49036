// Losses that the trainer's fused head does not compute, as functions of log-probabilities: preferences (losses/preference_losses.h), distillation
// (losses/distillation.h), and losses that clients trace (losses/custom_loss.h). A piece of a batch is scored, the loss returns weights
// -dLoss/dlogprob, and the weighted cross-entropy then has the loss's gradient (host/batch_loss_operation.cpp).
//   if (is_batch_loss(name)) { PreparedBatch prepared; auto loss = make_batch_loss(batch, limits, prepared); loss->weigh(prepared, 0, logprobs); }
#pragma once
#include <functional>
#include <memory>
#include <span>

#include "host/loss_inputs.h"

namespace lockstep {

class CustomLoss;

class BatchLoss {
 public:
  virtual ~BatchLoss() = default;
  // How many sequences are compared with and not trained: the first ones of the prepared batch, of which compare() is told before any other is weighed.
  virtual std::size_t untrained() const { return 0; }
  virtual void compare(const PreparedBatch& prepared, std::size_t first, std::span<const std::vector<float>> logprobs) {}
  // The client's datum that a sequence of the prepared batch is; errors and results are by datum.
  virtual std::size_t datum(std::size_t place) const { return place; }
  // How many data belong together and are never cut apart: 2 for pairs.
  virtual std::size_t together() const { return 1; }
  // The log-probabilities of data[first ...] under the weights that teacher_option() names, where it names some. Before weigh().
  virtual void told(std::size_t first, std::vector<std::vector<float>>&& logprobs) {}
  // Weights for data[first ...] with these log-probabilities. Errors name the datum.
  virtual void weigh(PreparedBatch& prepared, std::size_t first, std::span<const std::vector<float>> logprobs) = 0;
  // Metrics of all data weighed: "loss:sum" and others.
  virtual std::map<std::string, double> metrics() const = 0;
};

// Whether it is one of these losses; the others are those of train/losses.h, and "custom".
bool is_batch_loss(const std::string& name);
inline constexpr const char kDistillLoss[] = "distill";
inline constexpr const char kPairwiseRewardLoss[] = "pairwise_reward";  // over pairs, for a critic: trains a reward model
std::vector<std::string> batch_loss_names();                            // without a critic's
// For a loss that the model lacks. Errors: unsupported if critics have it and this is none, or the reverse; else invalid_argument.
[[noreturn]] void refuse_loss(const std::string& name, bool critic);
// The option of a batch's loss that names a teacher; empty: there is none. Before the loss is made, which checks it.
std::string teacher_option(const TrainingBatch& batch);
// Fills `prepared` with the trainer's input. Errors invalid_argument and unsupported: those of prepare_batch; an unknown or forbidden option; a missing
// input; an odd number of data for a loss over pairs.
std::unique_ptr<BatchLoss> make_batch_loss(const TrainingBatch& batch, const BatchLimits& limits, PreparedBatch& prepared);
// `batch` outlives it. `weighs_prompts`: weights of the data, or masks, say which rows are prompts, as those of other losses do; else they are what the loss
// makes of them. `room`: told of a datum's memory before weigh() takes it (losses/graph_tape.h).
std::unique_ptr<BatchLoss> make_custom_batch_loss(const TrainingBatch& batch, std::shared_ptr<const CustomLoss> loss, bool weighs_prompts,
                                                  const BatchLimits& limits, PreparedBatch& prepared, std::function<void(std::int64_t bytes)> room = {});

}  // namespace lockstep
