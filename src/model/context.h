// The context of one forward: families call its operations, in order. Without a tape it executes; with one it also records.
// Where ranks share the model (model/sharding.h), an operation works on this rank's share and joins it with the others' when the next
// one needs the whole; families do not see it. No data-dependent control flow: what depends on values (chosen experts, selected keys) stays on the device.
//   Tensor h = ctx.rms_norm(x, norm, eps); Tensor q = ctx.linear(h, q_proj);
// Shapes: T rows of the batch; see kernels/ for the mathematics and order of each operation.
#pragma once
#include <vector>

#include "model/batch.h"
#include "model/forward_counts.h"
#include "model/kv_cache.h"
#include "model/observer.h"
#include "model/tape.h"
#include "model/weights.h"

namespace lockstep {

class Sharding;
struct AdapterRows;

// Rows whose experts are wanted, and where they go: all sparse layers' (model/expert_shape.h).
struct ExpertRecord {
  View experts;  // i32 [R, ExpertShape::row()]; none: nobody asks
  View row;      // i32 [R, 1], of the batch
};

struct ForwardOptions {
  bool dense_attention = false;   // attend to all visible keys, whatever the indexer would select (indexer warm-up)
  bool index_loss = false;        // train the indexer by its KL loss
  float index_loss_weight = 0;    // of one row's KL in the gradient
  bool checkpoint = false;        // drop and replay segments of layers
  const std::vector<Buffer>* router_loads = nullptr;  // i32 [1, E] a sparse layer, counted up
  OperationObserver* observer = nullptr;              // sees every operation's output
  ExpertRecord expert_record;
  bool counts = true;             // kernels count what they do (Context::counts)
  const std::vector<AdapterRows>* adapters = nullptr;  // rows under adapters (model/adapter_rows.h); the others are the base's
};

// The table of model/rope_table.h on the device, and which columns it turns.
struct RopeAngles {
  View table;
  bool half = false;
};

// The keys that rows attend to: positions ascending. Empty views: dense.
struct Selection {
  Tensor positions, count;
  Tensor target;  // index loss: attention probabilities of the layers that share this selection, summed
};
// Which experts rows go to, and the slots where they stand (kernels/experts).
struct ExpertSlots {
  Buffer expert, slot_of, offsets, row_of;
};
struct Routing : ExpertSlots {
  Tensor weight;
  ExpertSlots tape;    // of the rows of the tape, where they are others
  Buffer tape_source;  // and which slot each of its slots was
  const ExpertSlots& of_tape() const { return tape.expert ? tape : *this; }
};
// Rows that are slots of experts, for a product by expert: item g has rows offsets[g] .. offsets[g + 1].
struct SlotRows {
  View offsets, row_of, tape_offsets, tape_row_of, tape_source;
};

class Context {
 public:
  Context(Backend& backend, const Manifest& manifest, const Profile& profile, const WeightSet& weights, KvCache& cache,
          const Batch& batch, const RopeAngles& rope, const ForwardOptions& options, Tape* tape, const Sharding* sharding = nullptr);

  const ForwardOptions& options() const { return options_; }
  Backend& backend() { return backend_; }
  const Batch& batch() const { return batch_; }
  const View& flags() const { return flags_.view(); }  // i32 [T, 1]: what went wrong in a row (kernels/*/*.h)

  Tensor embedding(ParameterId table);
  Tensor rms_norm(const Tensor& x, ParameterId w, float eps);
  // x [T, heads * n], each head by itself; w [n] is shared by the heads.
  Tensor rms_norm_heads(const Tensor& x, ParameterId w, float eps);
  Tensor layer_norm(const Tensor& x, ParameterId w, ParameterId b, float eps);
  Tensor linear(const Tensor& x, ParameterId w);
  Tensor add(const Tensor& a, const Tensor& b);
  Tensor swiglu(const Tensor& gate, const Tensor& up);
  // x [T, heads * size] with the first `rotary` columns of each head rotated.
  Tensor rope_heads(const Tensor& x, std::int64_t heads, std::int64_t size, std::int64_t rotary);

  // Multi-head latent attention, absorbed (kernels/attention): q [T, H * (nope + R)] -> [T, H * (L + R)].
  Tensor mla_query(const Tensor& q, ParameterId w_uk, std::int64_t rotary);
  // kv [T, L + R] -> the cache entry [norm(latent) | rope(key)].
  Tensor mla_entry(const Tensor& kv, ParameterId norm, float eps, std::int64_t rotary);
  // Grouped queries: k [T, Hk * D] and v [T, Hk * value] -> the cache entry [rope(k) | v].
  Tensor gqa_entry(const Tensor& k, const Tensor& v, const AttentionShape& shape);
  // Writes the entries to the layer's cache, attends over it: [T, H * value]. `selection` null: dense.
  Tensor attention(const Tensor& q, const Tensor& entry, int layer, Selection* selection, const AttentionShape& shape);
  // [T, H * L] -> [T, H * v]
  Tensor mla_values(const Tensor& o, ParameterId w_uv);

  // The indexer: writes k to the layer's index cache, selects top_k keys a row. With options().index_loss, records the loss.
  Selection index_select(const Tensor& q, const Tensor& w, const Tensor& k, int layer, std::int64_t heads, std::int64_t size,
                         std::int64_t top_k);

  // The experts of batch().experts() where some are given, else those of the largest scores.
  Routing route(const Tensor& logits, ParameterId bias, std::int64_t top_k, bool normalise, float scaling, int sparse_layer);
  // SwiGLU experts over the routed rows, combined: [T, h].
  Tensor experts(const Tensor& x, const Routing& routing, ParameterId gate, ParameterId up, ParameterId down);

  // Runs body(context, input); with options().checkpoint and a tape its activations are dropped and made again in backward.
  template <class F>
  Tensor segment(const Tensor& input, const F& body);

  // KL of the index loss, f32 [T, 1] a full layer (after forward).
  const std::vector<Buffer>& index_losses() const { return index_losses_; }
  // What this rank's kernels have counted of themselves in the forward; waits for the stream. Layers that backward computes again are not counted.
  ForwardCounts counts();
  Buffer allocate(DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category = MemoryCategory::activations) {
    return backend_.device().allocate(dtype, rows, cols, category);
  }
  PackedWeight packed(ParameterId id) const { return packed_weight(manifest_, weights_, id, profile_); }
  // The same with the leaves of this rank's share: where the sum of a product crosses ranks.
  PackedWeight packed_share(ParameterId id) const;
  const Sharding* sharding() const { return sharding_; }
  // y, a partial sum of this rank, becomes the whole sum on every rank: over the leaves of w, or over the groups of experts.
  void join_leaves(const View& y, ParameterId w);
  void join_experts(const View& y);
  // Columns of all tensor-parallel ranks, side by side.
  void gather_columns(const View& all, const View& own, const ColumnSplit& split);
  const View& weight(ParameterId id) const { return weights_.parameters[static_cast<std::size_t>(id)].view(); }
  const Profile& profile() const { return profile_; }
  // The activation with the rows of the tape (batch().tape_rows()): what adjoints work on.
  View taped(const Tensor& x);
  View taped_flags();

 private:
  // Cells in which kernels of one shape count, from 0 on; none where nobody counts.
  View cells(std::vector<Buffer>& of, std::int64_t rows, std::int64_t cols);
  Tensor output(std::int64_t cols) { return output_rows(batch_.count(), cols); }
  Tensor output_rows(std::int64_t rows, std::int64_t cols);
  Tensor output_slots(std::int64_t cols, const SlotRows& slots, std::int64_t rows);
  // An activation of the batch's rows in `buffer`.
  Tensor of_rows(Buffer buffer, int node = -1) const;
  Buffer allocate_tape(std::int64_t cols) { return allocate(DType::f32, batch_.tape_count(), cols); }
  const Rows& tape_rows() const { return batch_.tape_rows(); }
  Tensor linear_over(const Tensor& x, ParameterId w, Tensor y, std::int64_t x_step, std::int64_t y_step, const SlotRows& slots);
  SlotRows slot_rows(const Routing& routing, std::int64_t first, std::int64_t experts) const;
  // Launches the adjoint of attention; its gradient of the entries, one a row.
  Buffer attention_backward(AttentionBackward backward, std::int64_t entry_columns);
  // Where the gradient of w goes, over rows in the batch's segments; steps and offsets are the caller's.
  LinearBackwardWeight weight_gradient(ParameterId w, const View& dy, const View& x) const;
  // Whether the record of an operation is needed: not where the weights are frozen and no gradient is asked for below it; y then
  // has no node.
  bool reaches(Tensor& y, std::initializer_list<int> inputs, bool adapted = false) const;
  bool adapted(ParameterId w) const;
  // Adapters on a matrix: y += B (s (A x)) over each adapter's rows; and their adjoint, which adds to dx (none: nothing below).
  void adapter_forward(const View& y, const View& x, ParameterId w, const SlotRows& slots);
  void adapter_backward(const View& dx, const View& dy, const View& x, ParameterId w, const SlotRows& slots);
  // The same of kv_b inside absorbed attention: its keys on a query, its values on what attention returns.
  void adapter_query_forward(const View& y, const View& q, ParameterId w_uk, std::int64_t rotary);
  void adapter_query_backward(const View& dq, const View& dy, const View& q, ParameterId w_uk, std::int64_t rotary);
  void adapter_values_forward(const View& y, const View& o, ParameterId w_uv);
  void adapter_values_backward(const View& dx, const View& dy, const View& o, ParameterId w_uv);
  struct SlotSpan {
    Buffer begin, end;
  };
  SlotSpan slot_span(const View& offsets, const View& row_of, std::int64_t row_begin, std::int64_t row_end);
  // The row of the batch that row i of an activation seen head by head is of, for rows [0, rows * heads).
  Buffer head_rows(std::int64_t rows, std::int64_t heads);
  ParameterSplit split_of(ParameterId w) const { return sharding_ ? manifest_.parameter(w).split : ParameterSplit::whole; }
  // All columns on every rank; and this rank's columns, cut as `split` says (null: all).
  Tensor whole(const Tensor& x);
  Tensor cut(const Tensor& x, const ColumnSplit& split);
  Tensor embedding_by_vocabulary(ParameterId table);
  Tensor linear_by_outputs(const Tensor& x, ParameterId w);
  Tensor linear_by_inputs(const Tensor& x, ParameterId w);
  // n heads of `width` columns as ranks share them, and this rank's number; without ranks null and n.
  ColumnSplit head_columns(std::int64_t n, std::int64_t width) const;
  std::int64_t own_heads(std::int64_t n) const;
  void record_whole_attention_backward(const Tensor& q, const Tensor& entry, const Tensor& o, const Tensor& log_sum, const View& cache,
                                       const Tensor& positions, const Tensor& count, const AttentionShape& shape);
  Buffer gathered(const View& own, const ColumnSplit& split);
  Tensor experts_of_ranks(const Tensor& x, const Routing& routing, ParameterId gate, ParameterId up, ParameterId down);
  Tensor rms_norm_over(const Tensor& x, ParameterId w, float eps, std::int64_t heads);
  Tensor swiglu_over(const Tensor& gate, const Tensor& up);
  // dw where the weights are not frozen.
  void launch_rms_norm_backward(const View& dx, const View& dy, const View& x, ParameterId w, float eps, std::int64_t heads);
  void launch_rope(const View& y, const View& x, std::int64_t heads, std::int64_t rotary, std::int64_t pass, std::int64_t x_offset,
                   std::int64_t x_step, std::int64_t y_offset, std::int64_t y_step, bool inverse);
  bool recording() const { return tape_ != nullptr; }
  void observe(std::string_view name, const View& output, ParameterId parameter = -1, int layer = -1, const View& slot_of = {}) {
    if (!options_.observer) return;
    const std::string_view of = parameter < 0 ? std::string_view() : manifest_.parameter(parameter).name;
    options_.observer->operation({name, of, layer, output, slot_of});
  }

  Backend& backend_;
  const Manifest& manifest_;
  const Profile& profile_;
  const WeightSet& weights_;
  KvCache& cache_;
  const Batch& batch_;
  RopeAngles rope_;
  ForwardOptions options_;
  Tape* tape_;
  const Sharding* sharding_;
  Buffer flags_, taped_flags_;
  std::vector<Buffer> index_losses_, keys_read_, rows_made_;
};

template <class F>
Tensor Context::segment(const Tensor& input, const F& body) {
  if (!tape_ || !options_.checkpoint) return body(*this, input);
  Tape* tape = tape_;
  tape_ = nullptr;
  Tensor y = body(*this, input.detached());
  tape_ = tape;
  y.node = tape_->new_node();
  tape_->record([this, input = input.kept(), y_node = y.node, body] {
    Tape* outer = tape_;
    Buffer dy = outer->take(y_node);
    if (!dy) return;
    Tape inner(backend_, outer->gradients());
    const bool below = input.node >= 0 || !inner.frozen();
    const ForwardOptions options = options_;
    options_.checkpoint = false;
    options_.router_loads = nullptr;  // counted in the forward already
    options_.counts = false;
    if (options_.observer) options_.observer->replay_segment();
    tape_ = &inner;
    const Tensor again = of_rows(input.buffer, below ? inner.new_node() : -1);
    const Tensor y2 = body(*this, again);
    inner.contribute(y2.node, dy);
    inner.backward();
    Buffer dx = inner.take(again.node);
    tape_ = outer;
    options_ = options;
    if (dx) outer->contribute(input.node, dx);
  });
  return y;
}

}  // namespace lockstep
