#include "model/context.h"

#include <algorithm>
#include <future>
#include <utility>

#include "model/sharding.h"

namespace lockstep {

Context::Context(Backend& backend, const Manifest& manifest, const Profile& profile, const WeightSet& weights, KvCache& cache,
                 const Batch& batch, const RopeAngles& rope, const ForwardOptions& options, Tape* tape, const Sharding* sharding)
    : backend_(backend), manifest_(manifest), profile_(profile), weights_(weights), cache_(cache), batch_(batch),
      rope_(rope), options_(options), tape_(tape), sharding_(sharding),
      flags_(backend.device().allocate_zero(DType::i32, batch.count(), 1, MemoryCategory::activations)) {
  if (options_.observer) options_.observer->begin_forward(backend, batch);
}

View Context::cells(std::vector<Buffer>& of, std::int64_t rows, std::int64_t cols) {
  if (!options_.counts) return {};
  for (const Buffer& b : of)
    if (b.view().rows == rows && b.view().cols == cols) return b.view();
  of.push_back(backend_.device().allocate_zero(DType::i32, rows, cols, MemoryCategory::activations));
  return of.back().view();
}

ForwardCounts Context::counts() {
  ForwardCounts counts;
  std::vector<std::pair<std::int64_t*, std::future<std::vector<std::int32_t>>>> reads;  // all are asked for before the first is waited for
  for (const Buffer& b : keys_read_) reads.emplace_back(&counts.pairs_read, backend_.stream().read_ints(b.view()));
  for (const Buffer& b : rows_made_) reads.emplace_back(&counts.expert_rows, backend_.stream().read_ints(b.view()));
  for (auto& [sum, read] : reads)
    for (const std::int32_t n : read.get()) *sum += n;
  return counts;
}

Tensor Context::of_rows(Buffer buffer, int node) const {
  Tensor x{std::move(buffer), node};
  if (batch_.source()) x.tape_rows = std::make_shared<TapeRows>(TapeRows{batch_.source(), {}});
  return x;
}

Tensor Context::output_rows(std::int64_t rows, std::int64_t cols) {
  return of_rows(allocate(DType::f32, rows, cols), tape_ ? tape_->new_node() : -1);
}

Tensor Context::output_slots(std::int64_t cols, const SlotRows& slots, std::int64_t rows) {
  Tensor y{allocate(DType::f32, rows, cols), tape_ ? tape_->new_node() : -1};
  if (slots.tape_source) y.tape_rows = std::make_shared<TapeRows>(TapeRows{slots.tape_source, {}});
  return y;
}

View Context::taped(const Tensor& x) {
  if (!x.tape_rows) return x.view();
  TapeRows& rows = *x.tape_rows;
  if (!rows.buffer) {
    const View from = x.view();
    rows.buffer = allocate(from.dtype, rows.source.rows, from.cols);
    backend_.launch(&KernelTable::gather_rows, GatherRows{rows.buffer.view(), from, rows.source});
  }
  return rows.buffer.view();
}

View Context::taped_flags() {
  if (!batch_.source()) return flags_.view();
  taped_flags_ = allocate(DType::i32, batch_.tape_count(), 1);
  backend_.launch(&KernelTable::gather_rows, GatherRows{taped_flags_.view(), flags_.view(), batch_.source()});
  return taped_flags_.view();
}

bool Context::reaches(Tensor& y, std::initializer_list<int> inputs, bool adapted) const {
  if (!recording()) return false;
  if (!tape_->frozen() || adapted || std::any_of(inputs.begin(), inputs.end(), [](int node) { return node >= 0; })) return true;
  y.node = -1;
  return false;
}

Tensor Context::embedding(ParameterId table) {
  if (split_of(table) == ParameterSplit::vocabulary) return embedding_by_vocabulary(table);
  const Parameter& p = manifest_.parameter(table);
  const bool packed = p.layout == ParameterLayout::packed;
  Tensor y = output(p.inputs);
  if (split_of(table) == ParameterSplit::columns) y.split = sharding_->bounds(table);
  if (p.inputs > 0) backend_.launch(&KernelTable::embedding_forward, EmbeddingForward{y.view(), weight(table), batch_.rows().token, packed, weight_bits(p, profile_), p.outputs});
  observe("embedding", y.view(), table);
  if (reaches(y, {}))
    tape_->record([this, table, packed, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy || dy.view().cols == 0) return;
      if (packed) return tape_->keep_table_gradient(std::move(dy));
      GradientSet& g = *tape_->gradients();
      backend_.launch(&KernelTable::embedding_backward, EmbeddingBackward{g.gradient(table), g.bins(table), g.finish_at_once(), dy.view(),
                                                                          tape_rows().token, tape_rows().segment});
    });
  return whole(y);
}

Tensor Context::rms_norm(const Tensor& x, ParameterId w, float eps) {
  Tensor y = rms_norm_over(whole(x), w, eps, 1);
  observe("rms_norm", y.view(), w);
  return y;
}

Tensor Context::rms_norm_heads(const Tensor& x, ParameterId w, float eps) {
  const Tensor all = whole(x);  // the gradient of the weight is a sum over heads
  Tensor y = rms_norm_over(all, w, eps, all.view().cols / manifest_.parameter(w).inputs);
  observe("rms_norm_heads", y.view(), w);
  return y;
}

Tensor Context::rms_norm_over(const Tensor& x, ParameterId w, float eps, std::int64_t heads) {
  const auto by_head = [heads](const View& v) { return heads == 1 ? v : v.reshape(v.rows * heads, v.cols / heads); };
  Tensor y = output(x.view().cols);
  const auto forward = [this, w, eps, by_head](const View& to, const View& from) {
    backend_.launch(&KernelTable::rms_norm_forward, RmsNormForward{by_head(to), by_head(from), weight(w), eps});
  };
  forward(y.view(), x.view());
  if (!recording()) return y;
  const bool below = reaches(y, {x.node});
  y.remade = std::make_shared<Remade>([this, forward, x = x.kept()] {
    Buffer again = allocate(DType::f32, x.view().rows, x.view().cols);
    forward(again.view(), x.view());
    return again;
  });
  if (!below) return y;
  tape_->record([this, x = x.kept(), w, eps, heads, by_head, node = y.node] {
    Buffer dy = tape_->take(node);
    if (!dy) return;
    const View all = taped(x);
    Buffer dx = allocate_tape(all.cols);
    launch_rms_norm_backward(by_head(dx.view()), by_head(dy.view()), by_head(all), w, eps, heads);
    tape_->contribute(x.node, dx);
  });
  return y;
}

void Context::launch_rms_norm_backward(const View& dx, const View& dy, const View& x, ParameterId w, float eps, std::int64_t heads) {
  RmsNormBackward backward{dx, {}, {}, true, dy, x, weight(w), tape_rows().segment, eps, heads};
  if (GradientSet* g = tape_->gradients()) backward.gradient = g->gradient(w), backward.bins = g->bins(w), backward.finish = g->finish_at_once();
  backend_.launch(&KernelTable::rms_norm_backward, backward);
}

Tensor Context::layer_norm(const Tensor& x, ParameterId w, ParameterId b, float eps) {
  Tensor y = output(x.view().cols);
  backend_.launch(&KernelTable::layer_norm_forward, LayerNormForward{y.view(), x.view(), weight(w), weight(b), eps});
  observe("layer_norm", y.view(), w);
  if (reaches(y, {x.node}))
    tape_->record([this, x = x.kept(), w, b, eps, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      GradientSet& g = *tape_->gradients();  // the indexer's alone: nothing reaches it where the weights are frozen
      const View all = taped(x);
      Buffer dx = allocate_tape(all.cols);
      backend_.launch(&KernelTable::layer_norm_backward,
                      LayerNormBackward{dx.view(), g.gradient(w), g.gradient(b), g.bins(w), g.bins(b), g.finish_at_once(), dy.view(),
                                        all, weight(w), tape_rows().segment, eps});
      tape_->contribute(x.node, dx);
    });
  return y;
}

LinearBackwardWeight Context::weight_gradient(ParameterId w, const View& dy, const View& x) const {
  GradientSet& g = *tape_->gradients();
  LinearBackwardWeight backward;
  backward.gradient = g.gradient(w);
  backward.bins = g.bins(w);
  backward.finish = g.finish_at_once();
  backward.dy = dy;
  backward.x = x;
  backward.w = packed(w);
  backward.segment = tape_rows().segment;
  return backward;
}

Tensor Context::linear_over(const Tensor& x, ParameterId w, Tensor y, std::int64_t x_step, std::int64_t y_step, const SlotRows& slots) {
  const bool round = profile_.bf16_activations;
  LinearForward forward{y.view(), x.view(), packed(w), x_step, y_step, slots.offsets};
  forward.round_input_bf16 = round;
  if (slots.offsets) forward.rows_made = cells(rows_made_, x.view().rows, 1);
  backend_.launch(&KernelTable::linear_forward, forward);
  const bool adapts = adapted(w);
  const bool by_head = x_step > 0;
  if (adapts && by_head) adapter_values_forward(y.view(), x.view(), w);
  else if (adapts) adapter_forward(y.view(), x.view(), w, slots);
  if (reaches(y, {x.node}, adapts))
    tape_->record([this, x = x.kept(), w, x_step, y_step, slots, adapts, by_head, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      const View all = taped(x);
      if (!tape_->frozen()) {
        LinearBackwardWeight backward = weight_gradient(w, dy.view(), all);
        backward.x_step = x_step;
        backward.y_step = y_step;
        backward.offsets = slots.tape_offsets;
        backward.row_of = slots.tape_row_of;
        backend_.launch(&KernelTable::linear_backward_weight, backward);
      }
      Buffer dx;
      if (x.node >= 0) {
        dx = allocate(DType::f32, all.rows, all.cols);
        backend_.launch(&KernelTable::linear_backward_input, LinearBackwardInput{dx.view(), dy.view(), packed(w), x_step, y_step, slots.tape_offsets});
      }
      if (adapts && by_head) adapter_values_backward(dx.view(), dy.view(), all, w);
      else if (adapts) adapter_backward(dx.view(), dy.view(), all, w, slots);
      if (dx) tape_->contribute(x.node, dx);
    });
  return y;
}

Tensor Context::linear(const Tensor& input, ParameterId w) {
  if (split_of(w) == ParameterSplit::outputs) return linear_by_outputs(input, w);
  if (split_of(w) == ParameterSplit::inputs) return linear_by_inputs(input, w);
  const Tensor x = whole(input);
  Tensor y = linear_over(x, w, output(manifest_.parameter(w).outputs), 0, 0, {});
  observe("linear", y.view(), w);
  return y;
}

Tensor Context::mla_values(const Tensor& input, ParameterId w_uv) {
  const Parameter& p = manifest_.parameter(w_uv);
  const std::int64_t heads = sharding_ ? sharding_->bounds(w_uv)->back() : p.count;
  const Tensor o = cut(input, head_columns(heads, p.inputs));
  Tensor y = linear_over(o, w_uv, output(p.count * p.outputs), p.inputs, p.outputs, {});
  y.split = head_columns(heads, p.outputs);
  observe("mla_values", y.view(), w_uv);
  return y;
}

Tensor Context::add(const Tensor& left, const Tensor& right) {
  const Tensor a = whole(left), b = whole(right);
  Tensor y = output_rows(a.view().rows, a.view().cols);
  backend_.launch(&KernelTable::add, Add{y.view(), a.view(), b.view()});
  observe("add", y.view());
  if (reaches(y, {a.node, b.node}))
    tape_->record([this, a_node = a.node, b_node = b.node, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      tape_->contribute(b_node, dy);
      tape_->contribute(a_node, dy);
    });
  return y;
}

Tensor Context::swiglu(const Tensor& gate, const Tensor& up) {
  Tensor y = swiglu_over(gate, cut(up, gate.split));
  observe("swiglu", y.view());
  return y;
}

Tensor Context::swiglu_over(const Tensor& gate, const Tensor& up) {
  Tensor y{allocate(DType::f32, gate.view().rows, gate.view().cols), tape_ ? tape_->new_node() : -1, gate.split};
  if (gate.tape_rows) y.tape_rows = std::make_shared<TapeRows>(TapeRows{gate.tape_rows->source, {}});
  const auto forward = [this, gate, up](const View& to) {
    backend_.launch(&KernelTable::swiglu_forward, SwigluForward{to, gate.view(), up.view()});
  };
  forward(y.view());
  if (!recording()) return y;
  const bool below = reaches(y, {gate.node, up.node});
  y.remade = std::make_shared<Remade>([this, forward, rows = y.view().rows, cols = y.view().cols] {
    Buffer again = allocate(DType::f32, rows, cols);
    forward(again.view());
    return again;
  });
  if (!below) return y;
  tape_->record([this, gate, up, node = y.node] {
    Buffer dy = tape_->take(node);
    if (!dy) return;
    const View all_gate = taped(gate), all_up = taped(up);
    Buffer dgate = allocate(DType::f32, all_gate.rows, all_gate.cols);
    Buffer dup = allocate(DType::f32, all_gate.rows, all_gate.cols);
    backend_.launch(&KernelTable::swiglu_backward, SwigluBackward{dgate.view(), dup.view(), dy.view(), all_gate, all_up});
    tape_->contribute(up.node, dup);
    tape_->contribute(gate.node, dgate);
  });
  return y;
}

void Context::launch_rope(const View& y, const View& x, std::int64_t heads, std::int64_t rotary, std::int64_t pass, std::int64_t x_offset,
                          std::int64_t x_step, std::int64_t y_offset, std::int64_t y_step, bool inverse) {
  if (heads == 0 || rotary + pass == 0) return;  // another rank's heads
  backend_.launch(&KernelTable::rope, Rope{y, x, heads, rotary, pass, x_offset, x_step, y_offset, y_step, rope_.table,
                                           (inverse ? tape_rows() : batch_.rows()).position, inverse, rope_.half});
}

Tensor Context::rope_heads(const Tensor& input, std::int64_t all_heads, std::int64_t size, std::int64_t rotary) {
  // Heads that ranks have cut through are put together first.
  const auto cuts_heads = [&](const Tensor& t) {
    for (const std::int64_t b : *t.split)
      if (b % size) return true;
    return false;
  };
  const Tensor x = input.split && cuts_heads(input) ? whole(input) : input;
  const std::int64_t heads = x.split ? x.view().cols / size : all_heads;
  Tensor y = output(heads * size);
  y.split = x.split;
  launch_rope(y.view(), x.view(), heads, rotary, size - rotary, 0, size, 0, size, false);
  observe("rope_heads", y.view());
  if (reaches(y, {x.node}))
    tape_->record([this, cols = x.view().cols, x_node = x.node, heads, size, rotary, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      Buffer dx = allocate_tape(cols);
      launch_rope(dx.view(), dy.view(), heads, rotary, size - rotary, 0, size, 0, size, true);
      tape_->contribute(x_node, dx);
    });
  return y;
}

Tensor Context::mla_query(const Tensor& input, ParameterId w_uk, std::int64_t rotary) {
  const Parameter& p = manifest_.parameter(w_uk);  // heads items of [latent, nope]
  const std::int64_t heads = p.count, latent = p.outputs, nope = p.inputs, all_heads = sharding_ ? sharding_->bounds(w_uk)->back() : heads;
  const Tensor q = cut(input, head_columns(all_heads, nope + rotary));
  Tensor y = output(heads * (latent + rotary));
  y.split = head_columns(all_heads, latent + rotary);
  LinearForward absorb{y.view(), q.view(), packed(w_uk), nope + rotary, latent + rotary, {}};
  absorb.round_input_bf16 = profile_.bf16_activations;
  backend_.launch(&KernelTable::linear_forward, absorb);
  launch_rope(y.view(), q.view(), heads, rotary, 0, nope, nope + rotary, latent, latent + rotary, false);
  const bool adapts = adapted(w_uk);
  if (adapts) adapter_query_forward(y.view(), q.view(), w_uk, rotary);
  observe("mla_query", y.view(), w_uk);
  if (reaches(y, {q.node}, adapts))
    tape_->record([this, q = q.kept(), w_uk, rotary, heads, latent, nope, adapts, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      const View all = taped(q);
      if (!tape_->frozen()) {
        LinearBackwardWeight backward = weight_gradient(w_uk, dy.view(), all);
        backward.x_step = nope + rotary;
        backward.y_step = latent + rotary;
        backend_.launch(&KernelTable::linear_backward_weight, backward);
      }
      Buffer dq = allocate_tape(all.cols);
      backend_.launch(&KernelTable::linear_backward_input,
                      LinearBackwardInput{dq.view(), dy.view(), packed(w_uk), nope + rotary, latent + rotary, {}});
      if (adapts) adapter_query_backward(dq.view(), dy.view(), all, w_uk, rotary);
      launch_rope(dq.view(), dy.view(), heads, rotary, 0, latent, latent + rotary, nope, nope + rotary, true);
      tape_->contribute(q.node, dq);
    });
  return y;
}

Tensor Context::mla_entry(const Tensor& kv, ParameterId norm, float eps, std::int64_t rotary) {
  const std::int64_t latent = manifest_.parameter(norm).inputs;
  Tensor y = output(latent + rotary);
  backend_.launch(&KernelTable::rms_norm_forward,
                  RmsNormForward{y.view().column_range(0, latent), kv.view().column_range(0, latent), weight(norm), eps});
  launch_rope(y.view(), kv.view(), 1, rotary, 0, latent, 0, latent, 0, false);
  observe("mla_entry", y.view(), norm);
  if (reaches(y, {kv.node}))
    tape_->record([this, kv, norm, eps, rotary, latent, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      const View all = taped(kv);
      Buffer dkv = allocate_tape(all.cols);
      launch_rms_norm_backward(dkv.view().column_range(0, latent), dy.view().column_range(0, latent), all.column_range(0, latent), norm, eps, 1);
      launch_rope(dkv.view(), dy.view(), 1, rotary, 0, latent, 0, latent, 0, true);
      tape_->contribute(kv.node, dkv);
    });
  return y;
}

Tensor Context::gqa_entry(const Tensor& all_k, const Tensor& all_v, const AttentionShape& shape) {
  const Tensor k = cut(all_k, head_columns(shape.kv_heads, shape.key)), v = cut(all_v, head_columns(shape.kv_heads, shape.value));
  const std::int64_t heads = own_heads(shape.kv_heads), size = shape.key, keys = heads * size, values = heads * shape.value;
  Tensor y = output(keys + values);
  launch_rope(y.view(), k.view(), heads, size, 0, 0, size, 0, size, false);
  launch_rope(y.view(), v.view(), 1, 0, values, 0, 0, keys, 0, false);  // a copy
  observe("gqa_entry", y.view());
  if (reaches(y, {k.node, v.node}))
    tape_->record([this, k_node = k.node, v_node = v.node, heads, size, keys, values, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      Buffer dk = allocate(DType::f32, dy.view().rows, keys), dv = allocate(DType::f32, dy.view().rows, values);
      launch_rope(dv.view(), dy.view(), 1, 0, values, keys, 0, 0, 0, true);
      launch_rope(dk.view(), dy.view(), heads, size, 0, 0, size, 0, size, true);
      tape_->contribute(v_node, dv);
      tape_->contribute(k_node, dk);
    });
  return y;
}

Tensor Context::attention(const Tensor& all_q, const Tensor& entry, int layer, Selection* selection, const AttentionShape& all) {
  // Ranks share groups of heads where each has a key, and else heads.
  AttentionShape shape = all;
  const bool by_group = all.kv_heads > 1 || !all.value_in_key;
  const std::int64_t groups = by_group ? all.kv_heads : all.heads, heads_a_group = all.heads / groups;
  const Tensor q = cut(all_q, head_columns(groups, heads_a_group * all.key));
  shape.heads = own_heads(groups) * heads_a_group;
  if (by_group) shape.kv_heads = own_heads(groups);
  const View cache = cache_.layers[static_cast<std::size_t>(layer)].entry.view();
  if (cache.cols > 0) backend_.launch(&KernelTable::cache_write, CacheWrite{cache, 0, entry.view(), batch_.rows()});
  const bool dense = !selection || options_.dense_attention;
  const Tensor positions = dense ? Tensor{} : selection->positions, count = dense ? Tensor{} : selection->count;
  Tensor o = output(shape.heads * shape.value);
  o.split = head_columns(groups, heads_a_group * all.value);
  const Tensor log_sum = of_rows(allocate(DType::f32, batch_.count(), shape.heads));
  if (shape.heads > 0)
    backend_.launch(&KernelTable::attention_forward,
                    AttentionForward{o.view(), log_sum.view(), q.view(), cache, positions.view(), count.view(), batch_.rows(), shape,
                                     cells(keys_read_, batch_.count(), shape.heads)});
  observe("attention", o.view(), -1, layer);
  if (!reaches(o, {q.node, entry.node})) return o;
  if (selection && selection->target.buffer) {  // a sum over all heads in order
    const Buffer all_log_sum = gathered(log_sum.view(), head_columns(groups, heads_a_group)), whole_q = gathered(q.view(), q.split);
    backend_.launch(&KernelTable::attention_target,
                    AttentionTarget{selection->target.view(), all_log_sum ? all_log_sum.view() : log_sum.view(),
                                    whole_q ? whole_q.view() : q.view(), cache, positions.view(), count.view(), batch_.rows(), all});
  }
  if (sharding_ && !by_group) {
    record_whole_attention_backward(q, entry, o, log_sum, cache, positions, count, all);
    return o;
  }
  tape_->record([this, q = q.kept(), entry_node = entry.node, entry_columns = entry.view().cols, o, log_sum, cache, positions, count, shape] {
    Buffer dout = tape_->take(o.node);
    if (!dout) return;
    Buffer dq = allocate_tape(q.view().cols);
    Buffer dentry;
    if (shape.heads > 0)
      dentry = attention_backward({dq.view(), {}, dout.view(), taped(o), taped(log_sum), taped(q), cache, taped(positions), taped(count), {}, shape},
                                  entry_columns);
    else dentry = allocate_tape(entry_columns);
    tape_->contribute(entry_node, dentry);
    tape_->contribute(q.node, dq);
  });
  return o;
}

Buffer Context::attention_backward(AttentionBackward backward, std::int64_t entry_columns) {
  const Batch::KeySums& sums = batch_.key_sums();
  Buffer dentry = allocate_tape(entry_columns);
  const Buffer of_keys = sums.keys > 0 ? allocate(DType::f32, sums.keys, entry_columns) : Buffer();
  backward.dentry = of_keys ? of_keys.view() : dentry.view();
  backward.rows = tape_rows();
  backend_.launch(&KernelTable::attention_backward, backward);
  if (of_keys) backend_.launch(&KernelTable::sum_shared_rows, SumSharedRows{dentry.view(), of_keys.view(), sums.begin, sums.row});
  return dentry;
}

Selection Context::index_select(const Tensor& q, const Tensor& w, const Tensor& k, int layer, std::int64_t heads, std::int64_t size,
                                std::int64_t top_k) {
  const View cache = cache_.layers[static_cast<std::size_t>(layer)].index_key.view();
  backend_.launch(&KernelTable::cache_write, CacheWrite{cache, 0, k.view(), batch_.rows()});
  Selection selection;
  const bool dense = options_.dense_attention;
  if (!dense) {
    selection.positions = of_rows(allocate(DType::i32, batch_.count(), top_k));
    selection.count = of_rows(allocate(DType::i32, batch_.count(), 1));
    backend_.launch(&KernelTable::index_select, IndexSelect{selection.positions.view(), selection.count.view(), flags_.view(), q.view(),
                                                            w.view(), cache, batch_.rows(), heads, size, top_k});
    observe("index_select", selection.positions.view(), -1, layer);
  }
  if (!recording() || !options_.index_loss) return selection;
  selection.target = of_rows(backend_.device().allocate_zero(DType::f32, batch_.count(), dense ? batch_.longest() : top_k, MemoryCategory::activations));
  index_losses_.push_back(allocate_tape(1));
  // Runs in backward, when every layer that shares the selection has added its probabilities to the target.
  tape_->record([this, q = q.kept(), w = w.kept(), k = k.kept(), cache, selection, heads, size, loss = index_losses_.back()] {
    Buffer dq = allocate_tape(q.view().cols);
    Buffer dw = allocate_tape(w.view().cols);
    Buffer dk = allocate_tape(k.view().cols);
    backend_.launch(&KernelTable::index_loss,
                    IndexLoss{dq.view(), dw.view(), dk.view(), loss.view(), taped(q), taped(w), cache, taped(selection.target),
                              taped(selection.positions), taped(selection.count), tape_rows(), heads, size, options_.index_loss_weight});
    tape_->contribute(k.node, dk);
    tape_->contribute(w.node, dw);
    tape_->contribute(q.node, dq);
  });
  return selection;
}

Routing Context::route(const Tensor& logits, ParameterId bias, std::int64_t top_k, bool normalise, float scaling, int sparse_layer) {
  const std::int64_t rows = batch_.count(), experts = logits.view().cols;
  Routing routing;
  routing.expert = allocate(DType::i32, rows, top_k);
  routing.slot_of = allocate(DType::i32, rows, top_k);
  routing.offsets = allocate(DType::i32, experts + 1, 1);
  routing.row_of = allocate(DType::i32, rows * top_k, 1);
  routing.weight = output_rows(rows, top_k);
  const auto of_layer = [&](const View& all) { return all ? all.column_range(sparse_layer * top_k, top_k) : View(); };
  backend_.launch(&KernelTable::router_forward, RouterForward{routing.expert.view(), routing.weight.view(), flags_.view(), logits.view(),
                                                              weight(bias), normalise, scaling, of_layer(batch_.experts())});
  if (const ExpertRecord& record = options_.expert_record; record.experts)
    backend_.launch(&KernelTable::gather_rows, GatherRows{of_layer(record.experts), routing.expert.view(), record.row});
  observe("route", routing.expert.view(), bias);
  observe("route_weight", routing.weight.view(), bias);
  backend_.launch(&KernelTable::expert_plan,
                  ExpertPlan{routing.offsets.view(), routing.row_of.view(), routing.slot_of.view(), routing.expert.view()});
  if (batch_.source() && (recording() || options_.router_loads)) {
    const std::int64_t tape = batch_.tape_count();
    routing.tape = {allocate(DType::i32, tape, top_k), allocate(DType::i32, tape, top_k), allocate(DType::i32, experts + 1, 1),
                    allocate(DType::i32, tape * top_k, 1)};
    routing.tape_source = allocate(DType::i32, tape * top_k, 1);
    const ExpertSlots& slots = routing.tape;
    backend_.launch(&KernelTable::gather_rows, GatherRows{slots.expert.view(), routing.expert.view(), batch_.source()});
    backend_.launch(&KernelTable::expert_plan, ExpertPlan{slots.offsets.view(), slots.row_of.view(), slots.slot_of.view(), slots.expert.view()});
    backend_.launch(&KernelTable::slot_source, SlotSource{routing.tape_source.view(), slots.slot_of.view(), batch_.source(), routing.slot_of.view()});
  }
  if (options_.router_loads)
    backend_.launch(&KernelTable::router_load,
                    RouterLoad{(*options_.router_loads)[static_cast<std::size_t>(sparse_layer)].view(), routing.of_tape().expert.view()});
  if (reaches(routing.weight, {logits.node}))
    tape_->record([this, logits, expert = routing.of_tape().expert, normalise, scaling, node = routing.weight.node] {
      Buffer dweight = tape_->take(node);
      if (!dweight) return;
      const View all = taped(logits);
      Buffer dlogits = allocate_tape(all.cols);
      backend_.launch(&KernelTable::router_backward, RouterBackward{dlogits.view(), dweight.view(), expert.view(), all, normalise, scaling});
      tape_->contribute(logits.node, dlogits);
    });
  return routing;
}

SlotRows Context::slot_rows(const Routing& routing, std::int64_t first, std::int64_t experts) const {
  const ExpertSlots& tape = routing.of_tape();
  return {routing.offsets.view().row_range(first, experts + 1), routing.row_of.view(), tape.offsets.view().row_range(first, experts + 1), tape.row_of.view(),
          routing.tape_source.view()};
}

Tensor Context::experts(const Tensor& x, const Routing& routing, ParameterId gate, ParameterId up, ParameterId down) {
  if (sharding_) return experts_of_ranks(x, routing, gate, up, down);
  const std::int64_t slots = routing.row_of.view().rows, experts = manifest_.parameter(gate).count;
  const SlotRows rows = slot_rows(routing, 0, experts);
  const auto output_of = [&](std::int64_t cols) { return output_slots(cols, rows, slots); };
  Tensor gathered = output_of(x.view().cols);
  const View slot_of = routing.slot_of.view();
  backend_.launch(&KernelTable::expert_gather, ExpertGather{gathered.view(), x.view(), routing.row_of.view()});
  observe("expert_gather", gathered.view(), -1, -1, slot_of);
  if (reaches(gathered, {x.node}))
    tape_->record([this, x_node = x.node, routing, experts, node = gathered.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      Buffer dx = allocate_tape(dy.view().cols);
      const ExpertSlots& tape = routing.of_tape();
      backend_.launch(&KernelTable::expert_combine, ExpertCombine{dx.view(), dy.view(), {}, tape.expert.view(), tape.slot_of.view(), experts});
      tape_->contribute(x_node, dx);
    });
  const std::int64_t inner = manifest_.parameter(gate).outputs;
  const Tensor a = linear_over(gathered, gate, output_of(inner), 0, 0, rows);
  observe("expert_linear", a.view(), gate, -1, slot_of);
  const Tensor b = linear_over(gathered, up, output_of(inner), 0, 0, rows);
  observe("expert_linear", b.view(), up, -1, slot_of);
  const Tensor act = swiglu_over(a, b);
  observe("expert_swiglu", act.view(), -1, -1, slot_of);
  const Tensor out = linear_over(act, down, output_of(manifest_.parameter(down).outputs), 0, 0, rows);
  observe("expert_linear", out.view(), down, -1, slot_of);
  Tensor y = output(out.view().cols);
  backend_.launch(&KernelTable::expert_combine, ExpertCombine{y.view(), out.view(), routing.weight.view(), routing.expert.view(),
                                                              routing.slot_of.view(), experts});
  observe("expert_combine", y.view());
  if (reaches(y, {out.node, routing.weight.node}))
    tape_->record([this, out, routing, node = y.node] {
      Buffer dy = tape_->take(node);
      if (!dy) return;
      const View of_slots = taped(out), weights = taped(routing.weight);
      Buffer dx = allocate(DType::f32, of_slots.rows, of_slots.cols);
      Buffer dweight = allocate_tape(weights.cols);
      backend_.launch(&KernelTable::expert_spread,
                      ExpertSpread{dx.view(), dweight.view(), dy.view(), of_slots, weights, routing.of_tape().slot_of.view()});
      tape_->contribute(routing.weight.node, dweight);
      tape_->contribute(out.node, dx);
    });
  return y;
}

}  // namespace lockstep
