// What one depth of MtpTrainer's forward leaves to its losses and to the backward. Included by its sources alone.
#pragma once
#include "train/mtp_trainer.h"

namespace lockstep {

struct MtpTrainer::Depth {
  std::unique_ptr<Context> context;
  Buffer targets, weights, logprob, loss, dx;  // of the cross-entropy
  Tensor normed;
};

}  // namespace lockstep
