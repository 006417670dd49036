// Checks a client's batch and converts it to the trainer's input. Errors name the field that is wrong. Pure functions.
//   const PreparedBatch prepared = prepare_batch(batch, batch_limits(runtime));
#pragma once
#include "losses/datum.h"
#include "model/expert_shape.h"
#include "train/data.h"

namespace lockstep {

struct BatchLimits {
  std::int64_t vocabulary = 0, max_positions = 0;
  ExpertShape experts = {};
  bool values = false;  // a critic: rows have values instead of log-probabilities
};
BatchLimits batch_limits(const Runtime& runtime);  // of a model without a value head

struct PreparedBatch {
  std::vector<TrainSequence> sequences;
  std::vector<std::vector<std::int64_t>> shapes;  // of each datum's targets
  LossOptions loss;
  bool elementwise_loss = false;  // the result has the loss of each target
  bool values = false;            // BatchLimits::values
  bool declares = false;          // some sequences declare a shared prefix (train/data.h): the option share_prompts
};

// The value of an option of a loss that is one of these words. Error invalid_argument.
std::string text_option(const std::string& name, const LossValue& value, const std::vector<std::string>& names);

// Errors invalid_argument and unsupported name datum and field ("data[3].loss_fn_inputs.target_tokens"), or the unknown loss and those that exist.
PreparedBatch prepare_batch(const TrainingBatch& batch, const BatchLimits& limits);

// The client's output. `begin`: the first sequence of the result in `batch`.
TrainingOutput training_output(const PreparedBatch& batch, const ForwardBackwardResult& result);

}  // namespace lockstep
