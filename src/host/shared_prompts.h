// The option share_prompts=backward of a client's batch: equal prompts of the request are declared (train/declared_prompts.h), so that the backward has
// them once. Pure function.
//   share_prompts(batch, loss, sequences);
#pragma once
#include <vector>

#include "losses/datum.h"
#include "train/data.h"

namespace lockstep {

// `sequences`: the trainer's input of the batch's data. A prompt is the rows in front that weigh nothing, and of a loss by which a row without an advantage
// adds nothing, those too. Errors: unsupported for several targets a row; invalid_argument for a forward, and where no datum has a prompt.
void share_prompts(const TrainingBatch& batch, const LossOptions& loss, std::vector<TrainSequence>& sequences);

}  // namespace lockstep
