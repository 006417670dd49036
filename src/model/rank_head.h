// The head where ranks share the vocabulary (ParameterSplit::vocabulary): each makes the logits of its tokens; of a row only small
// numbers a leaf travel, and the gradient of the hidden state. Same results as the kernel head_loss on one rank, to the bit.
//   head_loss_of_ranks(context, head, model.head);
#pragma once
#include "model/context.h"

namespace lockstep {

// `head` as for the kernel, but w is this rank's share and logits_chunk [chunk, its tokens]. All tensor-parallel ranks call together.
void head_loss_of_ranks(Context& context, const HeadLoss& head, ParameterId id);

// Logits of chosen rows over the whole vocabulary, on every rank; `head.w` is this rank's share.
void head_logits_of_ranks(Context& context, const HeadLogits& head, ParameterId id);

}  // namespace lockstep
