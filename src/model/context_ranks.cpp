// The operations of a context where ranks share the model: the same sums, cut along leaves, heads and groups of experts.
#include <algorithm>

#include "model/context.h"
#include "model/sharding.h"

namespace lockstep {

namespace {
View own_columns(const View& all, const ColumnSplit& split, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  return all.column_range((*split)[at], (*split)[at + 1] - (*split)[at]);
}
}  // namespace

PackedWeight Context::packed_share(ParameterId id) const {
  PackedWeight share = packed(id);
  share.maximum_leaves = static_cast<int>(std::max<std::int64_t>(1, sharding_->own_leaves(id)));
  return share;
}

void Context::join_leaves(const View& y, ParameterId w) {
  all_reduce_tree(sharding_->tensor(), backend_.device(), y, sharding_->leaves(w),
                  [this](const View& into, const View& from) { backend_.launch(&KernelTable::add, Add{into, into, from}); });
}

void Context::join_experts(const View& y) {
  all_reduce_tree(sharding_->model(), backend_.device(), y, sharding_->expert_groups().back(),
                  [this](const View& into, const View& from) { backend_.launch(&KernelTable::add, Add{into, into, from}); });
}

void Context::gather_columns(const View& all, const View& own, const ColumnSplit& split) {
  std::vector<View> parts;
  for (int r = 0; r < sharding_->tensor().size(); ++r) parts.push_back(own_columns(all, split, r));
  all_gather(sharding_->tensor(), backend_.stream(), own, parts);
}

// Null where nothing is cut.
Buffer Context::gathered(const View& own, const ColumnSplit& split) {
  if (!split) return {};
  Buffer all = allocate(DType::f32, own.rows, split->back());
  gather_columns(all.view(), own, split);
  return all;
}

Tensor Context::whole(const Tensor& x) {
  if (!x.split) return x;
  Tensor y = output_rows(x.view().rows, x.split->back());
  gather_columns(y.view(), x.view(), x.split);
  if (recording())
    tape_->record([this, split = x.split, x_node = x.node, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy || x_node < 0) return;
      const View own = own_columns(dy.view(), split, sharding_->tensor().rank());
      Buffer dx = allocate(DType::f32, own.rows, own.cols);
      backend_.stream().copy(dx.view(), own);
      tape_->contribute(x_node, dx);
    });
  return y;
}

Tensor Context::cut(const Tensor& x, const ColumnSplit& split) {
  if (x.split == split || (x.split && split && *x.split == *split)) return x;
  const Tensor all = whole(x);
  if (!split) return all;
  const View own = own_columns(all.view(), split, sharding_->tensor().rank());
  Tensor y = output_rows(own.rows, own.cols);
  y.split = split;
  backend_.stream().copy(y.view(), own);
  if (recording())
    tape_->record([this, split, x_node = all.node, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy || x_node < 0) return;
      tape_->contribute(x_node, gathered(dy.view(), split));
    });
  return y;
}

ColumnSplit Context::head_columns(std::int64_t n, std::int64_t width) const { return sharding_ ? sharding_->columns(n, width) : nullptr; }
std::int64_t Context::own_heads(std::int64_t n) const { return sharding_ ? sharding_->dealt(n) : n; }

// A tied table is cut by tokens, as the head is: each rank looks up the rows whose tokens are its own. Which these
// are is known on the host.
Tensor Context::embedding_by_vocabulary(ParameterId table) {
  const std::vector<std::int64_t>& bounds = *sharding_->bounds(table);
  const auto ranks = static_cast<std::size_t>(sharding_->tensor().size()), me = static_cast<std::size_t>(sharding_->tensor().rank());
  std::vector<std::vector<std::int32_t>> rows_of(ranks);
  for (std::size_t t = 0; t < batch_.tokens().size(); ++t) {
    const auto after = std::upper_bound(bounds.begin(), bounds.end(), std::int64_t{batch_.tokens()[t]});
    rows_of[static_cast<std::size_t>(after - bounds.begin()) - 1].push_back(static_cast<std::int32_t>(t));
  }
  std::vector<std::int32_t> place(batch_.tokens().size()), tokens;  // where a row stands among those of all ranks, in rank order
  std::vector<std::int64_t> begin{0};
  for (const auto& rows : rows_of) {
    for (std::size_t i = 0; i < rows.size(); ++i) place[static_cast<std::size_t>(rows[i])] = static_cast<std::int32_t>(begin.back()) + static_cast<std::int32_t>(i);
    begin.push_back(begin.back() + static_cast<std::int64_t>(rows.size()));
  }
  for (const std::int32_t t : rows_of[me]) tokens.push_back(batch_.tokens()[static_cast<std::size_t>(t)] - static_cast<std::int32_t>(bounds[me]));
  const auto count = static_cast<std::int64_t>(tokens.size()), width = manifest_.parameter(table).inputs;
  const auto upload = [&](const std::vector<std::int32_t>& values) {
    return backend_.device().upload(values, static_cast<std::int64_t>(values.size()), 1, MemoryCategory::activations);
  };
  const Buffer own_tokens = upload(tokens), places = upload(place);
  const Buffer parts = allocate(DType::f32, batch_.count(), width);
  const auto part = [&](std::size_t r) { return parts.view().row_range(begin[r], begin[r + 1] - begin[r]); };
  if (count > 0) backend_.launch(&KernelTable::embedding_forward, EmbeddingForward{part(me), weight(table), own_tokens.view(), true});
  std::vector<View> all;
  for (std::size_t r = 0; r < ranks; ++r) all.push_back(part(r));
  all_gather(sharding_->tensor(), backend_.stream(), part(me), all);
  Tensor y = output(width);
  backend_.launch(&KernelTable::expert_gather, ExpertGather{y.view(), parts.view(), places.view()});
  observe("embedding", y.view(), table);
  if (recording())
    tape_->record([this, node = y.node] {
      if (Buffer dy = tape_->take(node)) tape_->keep_table_gradient(std::move(dy));  // the head's weight takes what is its own
    });
  return y;
}

// Each rank makes its columns of y; dx is a sum over all outputs, joined along its leaves.
Tensor Context::linear_by_outputs(const Tensor& input, ParameterId w) {
  const Tensor x = whole(input);
  const std::int64_t own = manifest_.parameter(w).outputs;
  Tensor y = output_rows(x.view().rows, own);
  y.split = sharding_->bounds(w);
  LinearForward forward{y.view(), x.view(), packed(w)};
  forward.round_input_bf16 = profile_.bf16_activations;
  if (own > 0) backend_.launch(&KernelTable::linear_forward, forward);
  observe("linear", y.view(), w);
  if (recording())
    tape_->record([this, x = x.kept(), w, own, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      if (own > 0) backend_.launch(&KernelTable::linear_backward_weight, weight_gradient(w, dy.view(), taped(x)));
      if (x.node < 0) return;
      Buffer dx = allocate_tape(x.view().cols);
      if (own > 0) backend_.launch(&KernelTable::linear_backward_input, LinearBackwardInput{dx.view(), dy.view(), packed_share(w)});
      join_leaves(dx.view(), w);
      tape_->contribute(x.node, dx);
    });
  return y;
}

// Each rank has columns of x and makes its leaves of y's sum.
Tensor Context::linear_by_inputs(const Tensor& input, ParameterId w) {
  const Tensor x = cut(input, sharding_->bounds(w));
  const Parameter& p = manifest_.parameter(w);
  Tensor y = output_rows(x.view().rows, p.outputs);
  LinearForward forward{y.view(), x.view(), packed_share(w)};
  forward.round_input_bf16 = profile_.bf16_activations;
  if (p.inputs > 0) backend_.launch(&KernelTable::linear_forward, forward);
  join_leaves(y.view(), w);
  observe("linear", y.view(), w);
  if (recording())
    tape_->record([this, x = x.kept(), w, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      const View all = taped(x);
      Buffer dx = allocate_tape(all.cols);
      if (all.cols > 0) {
        backend_.launch(&KernelTable::linear_backward_weight, weight_gradient(w, dy.view(), all));
        backend_.launch(&KernelTable::linear_backward_input, LinearBackwardInput{dx.view(), dy.view(), packed(w)});
      }
      tape_->contribute(x.node, dx);
    });
  return y;
}

// One entry serves all heads, and its gradient is a sum of blocks that each join all heads: made whole on every rank.
void Context::record_whole_attention_backward(const Tensor& q, const Tensor& entry, const Tensor& o, const Tensor& log_sum, const View& cache,
                                              const Tensor& positions, const Tensor& count, const AttentionShape& shape) {
  tape_->record([this, q, entry_node = entry.node, entry_columns = entry.view().cols, o, log_sum, cache, positions, count, shape] {
    Buffer dout = tape_->take(o.node);
    if (!dout) return;
    const Buffer all_q = gathered(taped(q), q.split), all_o = gathered(taped(o), o.split), all_dout = gathered(dout.view(), o.split),
                 all_log_sum = gathered(taped(log_sum), head_columns(shape.heads, 1));
    const Buffer all_dq = allocate_tape(all_q.view().cols);
    Buffer dentry = attention_backward({all_dq.view(), {}, all_dout.view(), all_o.view(), all_log_sum.view(), all_q.view(), cache,
                                        taped(positions), taped(count), {}, shape},
                                       entry_columns);
    Buffer dq = allocate_tape(q.view().cols);
    backend_.stream().copy(dq.view(), own_columns(all_dq.view(), q.split, sharding_->tensor().rank()));
    tape_->contribute(entry_node, dentry);
    tape_->contribute(q.node, dq);
  });
}

// Each rank has the experts of its groups, and adds up those groups; the ranks' sums join as the groups do.
Tensor Context::experts_of_ranks(const Tensor& input, const Routing& routing, ParameterId gate, ParameterId up, ParameterId down) {
  const Tensor x = whole(input);
  const std::int64_t slots = routing.row_of.view().rows, own = manifest_.parameter(gate).count, first = sharding_->begin(gate);
  const std::int64_t experts = sharding_->bounds(gate)->back();
  const auto rank = static_cast<std::size_t>(sharding_->model().rank());
  const int group_begin = static_cast<int>(sharding_->expert_groups()[rank]), group_end = static_cast<int>(sharding_->expert_groups()[rank + 1]);
  // Slots of other ranks' experts are not computed, and never looked at.
  const SlotRows own_slots = slot_rows(routing, first, own);
  const auto output_of = [&](ParameterId w) { return output_slots(manifest_.parameter(w).outputs, own_slots, slots); };
  Tensor rows = output_slots(x.view().cols, own_slots, slots);
  backend_.launch(&KernelTable::expert_gather, ExpertGather{rows.view(), x.view(), routing.row_of.view()});
  const auto combine = [=, this](const View& y, const View& of, const View& weight, const ExpertSlots& by) {
    ExpertCombine sum{y, of, weight, by.expert.view(), by.slot_of.view(), experts};
    sum.group_begin = group_begin;
    sum.group_end = group_end;
    if (group_begin < group_end) backend_.launch(&KernelTable::expert_combine, sum);
    join_experts(y);
  };
  if (recording())
    tape_->record([this, x_node = x.node, cols = x.view().cols, routing, combine, node = rows.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      Buffer dx = allocate_tape(cols);
      combine(dx.view(), dy.view(), {}, routing.of_tape());
      tape_->contribute(x_node, dx);
    });
  const Tensor a = linear_over(rows, gate, output_of(gate), 0, 0, own_slots);
  const Tensor b = linear_over(rows, up, output_of(up), 0, 0, own_slots);
  const Tensor out = linear_over(swiglu_over(a, b), down, output_of(down), 0, 0, own_slots);
  Tensor y = output(out.view().cols);
  combine(y.view(), out.view(), routing.weight.view(), routing);
  observe("expert_combine", y.view());
  if (recording())
    tape_->record([this, out, routing, first, own, gate, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      const View of_slots = taped(out), weight = taped(routing.weight);
      const ExpertSlots& tape = routing.of_tape();
      Buffer dx = allocate(DType::f32, of_slots.rows, of_slots.cols);
      Buffer own_dweight = allocate(DType::f32, weight.rows, weight.cols), dweight = allocate(DType::f32, weight.rows, weight.cols);
      ExpertSpread spread{dx.view(), own_dweight.view(), dy.view(), of_slots, weight, tape.slot_of.view()};
      spread.expert = tape.expert.view();
      spread.expert_begin = first;
      spread.expert_end = first + own;
      if (own > 0) backend_.launch(&KernelTable::expert_spread, spread);
      // Each pair's slope is its expert's rank's.
      Communicator& group = sharding_->model();
      const Buffer parts = allocate(DType::f32, weight.rows * group.size(), weight.cols);
      std::vector<View> all;
      for (int r = 0; r < group.size(); ++r) all.push_back(parts.view().row_range(r * weight.rows, weight.rows));
      all_gather(group, backend_.stream(), own_dweight.view(), all);
      backend_.launch(&KernelTable::pick, Pick{dweight.view(), parts.view(), tape.expert.view(), *sharding_->bounds(gate)});
      tape_->contribute(routing.weight.node, dweight);
      tape_->contribute(out.node, dx);
    });
  return y;
}

}  // namespace lockstep
