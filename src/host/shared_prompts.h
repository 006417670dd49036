// The option share_prompts=backward of a client's batch: equal prompts of the request are declared (train/declared_prompts.h), so that the backward has
// them once. Pure functions.
//   share_prompts(batch, loss, sequences);
#pragma once
#include <cstdint>
#include <vector>

#include "host/loss_inputs.h"
#include "losses/datum.h"
#include "train/data.h"

namespace lockstep {

class BatchLoss;

inline constexpr const char kSharePrompts[] = "share_prompts";
// Whether the option says backward. The other word, forward, is what is done anyway: rows of equal beginnings are computed once there. Error
// invalid_argument for a third.
bool shares_backward(const LossRequest& loss);

// `sequences`: the trainer's input of the batch's data. A prompt is the rows in front that weigh nothing, and of a loss by which a row without an advantage
// adds nothing, those too. Error invalid_argument for a forward, and where no datum has a prompt.
void share_prompts(const TrainingBatch& batch, const LossOptions& loss, std::vector<TrainSequence>& sequences);
// The same of a loss that weighs its data when their log-probabilities are known (host/batch_loss.h): of the sequences that are trained. Error
// invalid_argument, too, where more hangs together than is computed at once (host/batch_pieces.h).
// Of a loss over pairs each pair shares what both begin with and neither weighs.
void share_weighed_prompts(const BatchLoss& loss, std::int64_t max_positions, PreparedBatch& prepared);

}  // namespace lockstep
