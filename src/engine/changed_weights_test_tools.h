// Weights in which some elements of others changed, with what changed, for tests of ranks. Tests only.
//   const ChangedWeights next = changed_weights(runtime, weights, 1); engine.set_weights(next.weights);
#pragma once
#include "model/runtime.h"
#include "model/weight_changes.h"

namespace lockstep {

struct ChangedWeights {
  std::shared_ptr<WeightSet> weights;
  std::shared_ptr<WeightChanges> changes;  // as long as it lives, the weights say how they differ
};

// A copy of weights with every third output's weight of one input changed, in the last item of every parameter that has float numbers (or of those up to
// `last`); another `turn` takes other ones.
inline ChangedWeights changed_weights(Runtime& runtime, const std::shared_ptr<const WeightSet>& of, std::int64_t turn, std::size_t last = ~std::size_t{0}) {
  ChangedWeights made{std::make_shared<WeightSet>(), std::make_shared<WeightChanges>()};
  made.changes->from = of->identity;
  made.weights->version = of->version + 1;
  made.weights->parameters = of->parameters;
  made.weights->changes = made.changes;
  for (std::size_t i = 0; i < of->parameters.size() && i <= last; ++i) {
    const Parameter& p = runtime.model->manifest().parameters()[i];
    const View& before = of->parameters[i].view();
    if (before.dtype == DType::u8) continue;
    Buffer& own = made.weights->parameters[i];
    own = runtime.backend.device().allocate(before.dtype, before.rows, before.cols, MemoryCategory::weights);
    runtime.backend.stream().copy(own.view(), before);
    ParameterChanges& some = made.changes->parameters[static_cast<ParameterId>(i)];
    const float value = 0.03125f * static_cast<float>(turn + static_cast<std::int64_t>(i) % 7);
    for (std::int64_t n = turn % 3; n < p.outputs; n += 3)
      some.add(p.offset(p.count - 1, n, (n + turn) % p.inputs), before.dtype == DType::bf16 ? round_to_bf16(value).bits : float_bits(value));
    write_changes(runtime.backend, own, some);
  }
  return made;
}

}  // namespace lockstep
