// The router: chooses each row's experts (kernels/router), and assigns slots for the rows' copies (kernels/experts). Whole on every rank.
// Where ranks have rows of their own (ForwardOptions::dealt_rows) it is of this rank's, without slots.
//   const Routing routing = route(ctx, linear(ctx, h, router), rule, sparse_layer);
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

// How a router chooses and weighs (kernels/router/router.h).
struct RouterRule {
  std::int64_t top_k = 1;
  bool softmax = false;  // else sigmoids
  bool normalise = true;
  float scaling = 1;
  std::int64_t groups = 1, kept_groups = 1;
  ParameterId weight = -1, bias = -1;  // its matrix, for messages, and its correction bias; -1: none
};

// Fills in the rest of the slots of `slots.expert`.
void plan_slots(Context& ctx, ExpertSlots& slots, std::int64_t experts);

// Uses the experts of batch().experts() where given (router replay), else those with the largest choices.
Routing route(Context& ctx, const Tensor& logits, const RouterRule& rule, int sparse_layer);

}  // namespace lockstep
