#include "train/mtp_joint.h"

#include <numeric>

#include "kernels/launch.h"
#include "model/operations/ranks.h"
#include "model/sharding.h"
#include "parallel/transfer.h"

namespace lockstep {

void MtpRank::Joint::keep_segments(Forward forward, const Tensor& output) {
  output_ = output.node;
  stage_ = forward.stage.get();
  keep(std::move(forward));
}

Tensor MtpRank::Joint::input(Tape* of_layer, const Tensor& value, int node) {
  Tensor leaf = value.detached();
  if (of_layer) leaf.node = of_layer->new_node();
  inputs_.emplace_back(leaf.node, node);
  return leaf;
}

// Where ranks split the vocabulary each has the rows of its tokens.
void MtpRank::Joint::add_head(Context& of_model, const View& dz, const View& states, const std::vector<std::int32_t>& rows) {
  Backend& backend = runtime_.backend;
  const ParameterId id = runtime_.model->facts().head;
  const View own = own_columns(of_model, dz, split_of(of_model, id) == ParameterSplit::vocabulary ? sharding_->bounds(id) : nullptr);
  if (own.cols == 0) return;
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
  backward.dy = own;
  backward.x = x.view();
  backward.w = of_model.packed(id);
  backward.segment = segment.view();
  backend.launch(&KernelTable::linear_backward_weight, backward);
}

bool MtpRank::Joint::staged() const { return sharding_ && sharding_->stages() > 1; }

Buffer MtpRank::Joint::room(std::int64_t rows) const {
  return runtime_.backend.device().allocate_zero(DType::f32, rows, runtime_.model->facts().hidden, MemoryCategory::activations);
}

// From the stage with the layer to the one with the embedding; nothing on others. Where no loss is trained there, as of texts too short for chains, zeros.
Buffer MtpRank::Joint::embedded_gradient(Buffer of_leaf, std::int64_t rows) {
  if (!staged()) return of_leaf;
  if (sharding_->last_stage() && !of_leaf) of_leaf = room(rows);
  Buffer here;
  if (sharding_->first_stage()) here = room(rows);
  send_between(*sharding_->place().stages, runtime_.backend.stream(), sharding_->stages() - 1, 0, of_leaf.view(), here.view());
  return here;
}

void MtpRank::Joint::receive_output(std::int64_t rows) {
  if (output_ < 0) return;  // it has no segments
  Buffer dy = room(rows);
  swap_over(*sharding_->place().after, runtime_.backend.stream(), {}, dy.view());
  tape_.contribute(output_, std::move(dy));
}

void MtpRank::Joint::send_input(std::int64_t rows) {
  if (!stage_) return;
  if (!stage_->gradient) stage_->gradient = room(rows);
  swap_over(*sharding_->place().before, runtime_.backend.stream(), stage_->gradient.view(), {});
}

// Of each row that of the row behind it in its text, or a row of zeros; what stands at position 0 is of no row.
Buffer MtpRank::Joint::behind(const Buffer& dx, const std::vector<SequenceSlice>& slices) {
  Backend& backend = runtime_.backend;
  const std::int64_t count = dx.view().rows, width = dx.view().cols;
  std::vector<std::int32_t> rows;
  for (const SequenceSlice& slice : slices)
    for (std::size_t p = 0; p < slice.tokens.size(); ++p)
      rows.push_back(static_cast<std::int32_t>(p + 1 < slice.tokens.size() ? static_cast<std::int64_t>(rows.size()) + 1 : count));
  const Buffer index = backend.device().upload(rows, count, 1, MemoryCategory::activations);
  const Buffer all = backend.device().allocate_zero(DType::f32, count + 1, width, MemoryCategory::activations);
  backend.stream().copy(all.view().row_range(0, count), dx.view());
  Buffer of_hidden = backend.device().allocate(DType::f32, count, width, MemoryCategory::activations);
  backend.launch(&KernelTable::gather_rows, GatherRows{of_hidden.view(), all.view(), index.view()});
  return of_hidden;
}

void MtpRank::Joint::backward(Tape* of_layer, const std::vector<SequenceSlice>& slices) {
  std::int64_t rows = 0;
  for (const SequenceSlice& slice : slices) rows += static_cast<std::int64_t>(slice.tokens.size());
  for (const auto& [leaf, node] : inputs_)
    if (Buffer dx = embedded_gradient(of_layer ? of_layer->take(leaf) : Buffer(), rows)) tape_.contribute(node, std::move(dx));
  if (!of_layer) receive_output(rows);
  else if (const Buffer dx = of_layer->take(carried_)) add_hidden(behind(dx, slices));
  tape_.backward();
  send_input(rows);
}

}  // namespace lockstep
