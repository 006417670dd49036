// What the kernels of the head are told to minimise: a loss (loss_parameters.h), and the inputs of each target. Plain values.
#pragma once
#include "kernels/head/loss_parameters.h"
#include "tensor/view.h"

namespace lockstep {

struct Objective {
  LossKind kind = LossKind::none;
  LossParameters parameters{};
  // f32 [T, K], K targets a row. Only `weight` is always read; an optional one that is none has the parameter's value, or no effect.
  View weight{}, advantage{}, old_logprob{};
  View proximal{}, reference{};
  View clip_low{}, clip_high{};        // of each target, instead of the parameters
  View log_ratio{}, log_correction{};  // of its sequence, instead of the target's own
  Objective row_range(std::int64_t begin, std::int64_t count) const {
    Objective part = *this;
    for (View* v : {&part.weight, &part.advantage, &part.old_logprob, &part.proximal, &part.reference, &part.clip_low, &part.clip_high, &part.log_ratio,
                    &part.log_correction})
      if (*v) *v = v->row_range(begin, count);
    return part;
  }
};

}  // namespace lockstep
