#include "model/recording.h"

#include "kernels/launch.h"
#include "model/context.h"

namespace lockstep {

std::vector<Tensor> saved(Inputs inputs) {
  std::vector<Tensor> tensors;
  tensors.reserve(inputs.size());
  for (const Input& x : inputs) tensors.push_back(x.tensor.saved());
  return tensors;
}

View RecordedInputs::operator[](std::size_t i) const { return taped(context_, inputs_[i]); }

Buffer RecordedInputs::take_gradient(std::size_t i) const { return context_.tape()->take(inputs_[i].node); }

void record_adjoint(Context& ctx, int node, Inputs all, Adjoint adjoint) {
  ctx.tape()->record([&ctx, node, inputs = saved(all), adjoint = std::move(adjoint)] {
    Tape& tape = *ctx.tape();
    const Buffer dy = tape.take(node);
    if (!dy && node >= 0) return;
    InputGradients gradients = adjoint(dy, RecordedInputs(ctx, inputs));
    for (std::size_t i = gradients.size(); i-- > 0;)
      if (gradients[i]) tape.contribute(inputs[i].node, std::move(gradients[i]));
  });
}

Tensor of_rows(const Batch& batch, Buffer buffer) {
  Tensor x{std::move(buffer)};
  if (batch.source()) x.tape_rows = std::make_shared<TapeRows>(TapeRows{batch.source(), {}});
  return x;
}

View taped(Context& ctx, const Tensor& x) {
  if (!x.tape_rows) return x.view();
  TapeRows& rows = *x.tape_rows;
  if (!rows.buffer) {
    const View from = x.view();
    rows.buffer = ctx.allocate(from.dtype, rows.source.rows, from.cols);
    ctx.launch(&KernelTable::gather_rows, GatherRows{rows.buffer.view(), from, rows.source});
  }
  return rows.buffer.view();
}

View taped_flags(Context& ctx, Buffer& memory) {
  if (!ctx.batch().source()) return ctx.flags();
  memory = ctx.allocate(DType::i32, ctx.batch().tape_count(), 1);
  ctx.launch(&KernelTable::gather_rows, GatherRows{memory.view(), ctx.flags(), ctx.batch().source()});
  return memory.view();
}

}  // namespace lockstep
