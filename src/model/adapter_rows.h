// Which rows of a batch use which adapter, and where its gradients go. The rows of one adapter are contiguous, sequence by sequence.
//   options.adapters = &rows; model.forward(context);
// Plain values; what they point to outlives the forward and its backward.
#pragma once
#include "model/adapter.h"
#include "model/tape.h"

namespace lockstep {

struct AdapterRows {
  const AdapterWeights* weights = nullptr;
  GradientSet* gradients = nullptr;           // with bins, over the layout's manifest; null: no gradient
  std::int64_t begin = 0, end = 0;            // of the forward
  std::int64_t tape_begin = 0, tape_end = 0;  // of the backward (Batch::tape_rows)
};

}  // namespace lockstep
