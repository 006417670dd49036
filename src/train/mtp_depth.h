// What the forward of one depth of MtpTrainer leaves for its losses and its backward. Only MtpTrainer's sources include it.
#pragma once
#include "train/mtp_trainer.h"

namespace lockstep {

struct MtpTrainer::Depth {
  std::unique_ptr<Context> context;
  Buffer targets, weights, logprob, loss, dx;  // of the cross-entropy
  Tensor normed;
};

}  // namespace lockstep
