// Which rows of a batch are under which adapter, and where its gradients go. Rows of one adapter stand together, sequence by sequence.
// Plain values; what they point to outlives the forward and its backward.
//   options.adapters = &rows; model.forward(context);
#pragma once
#include "model/adapter.h"
#include "model/tape.h"

namespace lockstep {

struct AdapterRows {
  const AdapterWeights* weights = nullptr;
  GradientSet* gradients = nullptr;  // with bins, over the layout's manifest; null: no gradient
  std::int64_t begin = 0, end = 0;            // of the forward
  std::int64_t tape_begin = 0, tape_end = 0;  // of the backward (Batch::tape_rows)
};

// One adapter on one matrix: y += B (s (A x)).
struct AdapterPair {
  ParameterId a_id, b_id;
  PackedWeight a, b;
  float scale;
  std::int64_t rank() const { return a.outputs; }
};
// The adapter of a parameter of the model; false: it has none.
bool adapter_pair(const AdapterWeights& adapter, ParameterId base, const Profile& profile, AdapterPair& pair);

// u = s (A x), dense.
LinearForward adapter_down(const View& u, const View& x, const AdapterPair& pair);
// y += B u.
LinearForward adapter_up(const View& y, const View& u, const AdapterPair& pair);
// du = s (dy B), the gradient of A x.
LinearBackwardInput adapter_down_gradient(const View& du, const View& dy, const AdapterPair& pair);
// Deposits the gradient of an adapter's parameter.
LinearBackwardWeight adapter_weight_gradient(GradientSet& gradients, ParameterId id, const PackedWeight& w, const View& dy, const View& x,
                                             const View& segment);

}  // namespace lockstep
