#include "train/mtp_joint.h"

#include <numeric>

#include "kernels/launch.h"

namespace lockstep {

Tensor MtpRank::Joint::input(Tape& of_layer, const Tensor& of_model) {
  Tensor leaf = of_model.detached();
  leaf.node = of_layer.new_node();
  inputs_.emplace_back(leaf.node, of_model.node);
  return leaf;
}

int MtpRank::Joint::hidden_input(Tape& of_layer, const Tensor& hidden) {
  hidden_ = hidden.node;
  return carried_ = of_layer.new_node();
}

void MtpRank::Joint::add_head(Context& of_model, const View& dz, const View& states, const std::vector<std::int32_t>& rows) {
  Backend& backend = runtime_.backend;
  const ParameterId id = runtime_.model->facts().head;
  const auto count = static_cast<std::int64_t>(rows.size());
  std::vector<std::int32_t> each(rows.size());
  std::iota(each.begin(), each.end(), 0);
  const Buffer index = backend.device().upload(rows, count, 1, MemoryCategory::workspace),
               segment = backend.device().upload(each, count, 1, MemoryCategory::workspace),
               x = backend.device().allocate(DType::f32, count, states.cols, MemoryCategory::workspace);
  backend.launch(&KernelTable::gather_rows, GatherRows{x.view(), states, index.view()});
  LinearBackwardWeight backward;
  backward.gradient = gradients_.gradient(id);
  backward.bins = gradients_.bins(id);
  backward.finish = gradients_.finish_at_once();
  backward.dy = dz;
  backward.x = x.view();
  backward.w = of_model.packed(id);
  backward.segment = segment.view();
  backend.launch(&KernelTable::linear_backward_weight, backward);
}

void MtpRank::Joint::backward(Tape& of_layer, const std::vector<SequenceSlice>& slices) {
  for (const auto& [leaf, node] : inputs_)
    if (Buffer dx = of_layer.take(leaf)) tape_.contribute(node, std::move(dx));
  if (const Buffer dx = of_layer.take(carried_)) {
    Backend& backend = runtime_.backend;
    const std::int64_t count = dx.view().rows, width = dx.view().cols;
    // Of each row that of the row behind it in its text, or a row of zeros; what stands at position 0 is of no row.
    std::vector<std::int32_t> behind;
    for (const SequenceSlice& slice : slices)
      for (std::size_t p = 0; p < slice.tokens.size(); ++p)
        behind.push_back(static_cast<std::int32_t>(p + 1 < slice.tokens.size() ? static_cast<std::int64_t>(behind.size()) + 1 : count));
    const Buffer index = backend.device().upload(behind, count, 1, MemoryCategory::activations);
    const Buffer all = backend.device().allocate_zero(DType::f32, count + 1, width, MemoryCategory::activations);
    backend.stream().copy(all.view().row_range(0, count), dx.view());
    Buffer of_hidden = backend.device().allocate(DType::f32, count, width, MemoryCategory::activations);
    backend.launch(&KernelTable::gather_rows, GatherRows{of_hidden.view(), all.view(), index.view()});
    add_hidden(std::move(of_hidden));
  }
  tape_.backward();
}

}  // namespace lockstep
