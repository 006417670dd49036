// The router: which experts each row goes to (kernels/router), and the slots where its copies stand (kernels/experts). Whole on every rank.
//   const Routing routing = route(ctx, linear(ctx, h, router), bias, top_k, normalise, scaling, sparse_layer);
#pragma once
#include "model/context.h"

namespace lockstep {

struct ExpertSlots {
  Buffer expert, slot_of, offsets, row_of;
};
struct Routing : ExpertSlots {
  Tensor weight;
  ExpertSlots tape;    // of the rows of the tape, where they are others
  Buffer tape_source;  // and which slot each of its slots was
  const ExpertSlots& of_tape() const { return tape.expert ? tape : *this; }
};

// The experts of batch().experts() where some are given, else those of the largest scores.
Routing route(Context& ctx, const Tensor& logits, ParameterId bias, std::int64_t top_k, bool normalise, float scaling, int sparse_layer);

}  // namespace lockstep
