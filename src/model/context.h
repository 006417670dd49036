// The context of one forward: launches kernels, allocates activations, shows outputs to an observer and, with a tape, records adjoints.
// Operations (model/operations/) are written on it.
//   Tensor y = ctx.output_like(x, n);
//   ctx.launch(&KernelTable::add, Add{y.view(), a.view(), b.view()});
//   ctx.record(y, {a.linked(), b.linked()}, [](const Buffer& dy, const RecordedInputs&) -> InputGradients { return {dy, dy}; });
// It knows no operation. No data-dependent control flow: what depends on values (chosen experts, selected keys) stays on the device. One
// forward and its backward, on one thread; records refer to it, so it does not move.
// Shapes: T rows of the batch; see kernels/ for the mathematics and order of each operation.
#pragma once
#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "model/batch.h"
#include "model/forward_counts.h"
#include "model/kv_cache.h"
#include "model/observer.h"
#include "model/row_values.h"
#include "model/tape.h"
#include "model/weights.h"

namespace lockstep {

class Context;
class Sharding;
struct AdapterRows;

// Output of the chosen experts of some rows, in all MoE layers (model/expert_shape.h).
struct ExpertRecord {
  View experts;  // i32 [R, ExpertShape::row()]; none: not requested
  View row;      // i32 [R, 1], of the batch
};

struct ForwardOptions {
  bool dense_attention = false;                       // attend to all visible keys, whatever the indexer would select (indexer warm-up)
  bool index_loss = false;                            // train the indexer by its KL loss
  float index_loss_weight = 0;                        // of one row's KL in the gradient
  bool checkpoint = false;                            // activation checkpointing: free and recompute segments of layers
  const std::vector<Buffer>* router_loads = nullptr;  // i32 [1, E] a sparse layer, counted up
  OperationObserver* observer = nullptr;              // sees every operation's output
  ExpertRecord expert_record;
  bool counts = true;                                  // kernels count what they do (Context::counts)
  std::int32_t first_key = 0;                          // positions before it are no keys (Rows::first_key)
  const std::vector<AdapterRows>* adapters = nullptr;  // rows that use adapters (model/adapter_rows.h); the others use the base
  RowValues row_values = RowValues::segments;          // which are told and read:
  RowSink* row_sink = nullptr;                         // gets those that are computed; without a tape
  // Has them. Of segments: the forward computes none, and a backward recomputes them all; router loads are then counted there.
  RowSource* row_source = nullptr;
};

// A table of model/rope_table.h on the device, and which columns it rotates.
struct RopeAngles {
  View table;
  bool half = false;
};
// A model's tables: of its attention, and of its indexers, which may be the same.
enum class RopeUse { attention, indexer };
using RopeTables = std::array<RopeAngles, 2>;  // by use

// Gradients of an operation's inputs, in their order; an empty buffer, or none at the end: no gradient.
using InputGradients = std::vector<Buffer>;

// The inputs of an operation in the backward, as its record saved them.
class RecordedInputs {
 public:
  RecordedInputs(Context& context, const std::vector<Tensor>& inputs) : context_(context), inputs_(inputs) {}
  // Input i with the rows of the tape, gathered on first use; no view when it was only linked.
  View operator[](std::size_t i) const;
  bool requires_grad(std::size_t i) const { return inputs_[i].node >= 0; }

 private:
  Context& context_;
  const std::vector<Tensor>& inputs_;
};

// Maps the gradient of the output, which must not be written, to those of the inputs.
using Adjoint = std::function<InputGradients(const Buffer& dy, const RecordedInputs& x)>;
// Launches the kernels that fill y from the inputs x.
using Recompute = std::function<void(const View& y, std::span<const View> x)>;
using SegmentBody = std::function<Tensor(Context&, const Tensor&)>;

// An input of an operation: a reference for the length of a call, so that serving, which records nothing, copies nothing.
struct Input {
  Input(const Tensor& t) : tensor(t) {}
  const Tensor& tensor;
};
using Inputs = std::initializer_list<Input>;

class Context {
 public:
  Context(Backend& backend, const Manifest& manifest, const Profile& profile, const WeightSet& weights, KvCache& cache, const Batch& batch,
          const RopeTables& ropes, const ForwardOptions& options, Tape* tape, const Sharding* sharding = nullptr);

  Backend& backend() { return backend_; }
  const Profile& profile() const { return profile_; }
  const Batch& batch() const { return batch_; }
  const ForwardOptions& options() const { return options_; }
  // The batch's rows, and those of the tape, as attention and indexers see them.
  Rows key_rows() const { return with_first_key(batch_.rows()); }
  Rows tape_key_rows() const { return with_first_key(batch_.tape_rows()); }
  const Sharding* sharding() const { return sharding_; }  // null: no ranks share the model
  const RopeAngles& rope(RopeUse use) const { return ropes_[static_cast<std::size_t>(use)]; }
  KvCache::Layer& cache(int layer) { return cache_.layers[static_cast<std::size_t>(layer)]; }
  Tape* tape() { return tape_; }                                             // null: nothing is recorded
  GradientSet* gradients() { return tape_ ? tape_->gradients() : nullptr; }  // of parameters; null: none are computed
  const Parameter& parameter(ParameterId id) const { return manifest_.parameter(id); }
  const View& weight(ParameterId id) const { return weights_.parameters[static_cast<std::size_t>(id)].view(); }
  PackedWeight packed(ParameterId id) const { return packed_weight(manifest_, weights_, id, profile_); }
  const View& flags() const { return flags_.view(); }  // i32 [T, 1]: what went wrong in a row (kernels/*/*.h)

  template <class Arguments>
  void launch(void (*KernelTable::*kernel)(const Arguments&, ThreadPool&), const Arguments& arguments) {
    backend_.launch(kernel, arguments);
  }
  Buffer allocate(DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category = MemoryCategory::activations) {
    return backend_.device().allocate(dtype, rows, cols, category);
  }
  Buffer allocate_tape(std::int64_t cols) { return allocate(DType::f32, batch_.tape_count(), cols); }
  // An activation with the batch's rows: in `buffer`; or f32 [T, cols], not yet written.
  Tensor of_rows(Buffer buffer) const;
  Tensor output(std::int64_t cols) { return of_rows(allocate(DType::f32, batch_.count(), cols)); }
  // f32 with the rows of x, whatever they are.
  Tensor output_like(const Tensor& x, std::int64_t cols);
  // Fills y, which is cheap to compute from at most four inputs: records save the function to recompute it instead of its buffer.
  template <class F>
  void compute(Tensor& y, Inputs inputs, const F& recompute) {
    std::array<View, 4> views;
    std::transform(inputs.begin(), inputs.end(), views.begin(), [](const Input& x) { return x.tensor.view(); });
    recompute(y.view(), std::span<const View>(views.data(), inputs.size()));
    if (tape_) save_recompute(y, inputs, recompute);
  }
  void observe(std::string_view name, const View& output, ParameterId parameter = -1, int layer = -1, const View& slot_of = {}) const;

  // Records the adjoint of y = f(inputs); call it last in an operation. When y has a gradient, the backward calls the adjoint and adds what
  // it returns to the inputs' gradients, the last input's first. Pass an input as `linked()` if the adjoint does not read it, as
  // `detached()` if it reads it and no gradient goes there. Nothing is recorded when no gradient is needed: the weights are
  // frozen, no input requires one, and `requires_grad` is false (true: an adapter on the operation's weight is trained).
  template <class F>
  void record(Tensor& y, Inputs inputs, F&& adjoint, bool requires_grad = false) {
    if (!tape_) return;
    const bool below = std::any_of(inputs.begin(), inputs.end(), [](const Input& x) { return x.tensor.node >= 0; });
    if (tape_->frozen() && !requires_grad && !below) return;
    const int node = tape_->new_node();
    record_node(node, inputs, std::forward<F>(adjoint));
    y.node = node;  // y may be among the inputs
  }
  // The same for a loss: the backward calls it without an output gradient.
  template <class F>
  void record_loss(Inputs inputs, F&& adjoint) {
    if (tape_) record_node(-1, inputs, std::forward<F>(adjoint));
  }
  // The activation with the rows of the tape (batch().tape_rows()): what adjoints work on.
  View taped(const Tensor& x);
  View taped_flags();
  // Runs body(context, input); with options().checkpoint and a tape its activations are freed and recomputed in the backward.
  template <class F>
  Tensor segment(const Tensor& input, const F& body) {
    if (options_.row_source && options_.row_values == RowValues::segments) return read_segment(input, body);
    Tensor y = tape_ && options_.checkpoint ? checkpointed_segment(input, body) : body(*this, input);
    leave_segment(y);
    return y;
  }

  // launch() fills fresh buffers, f32, of the batch's rows, or of their slots (`slot_of`, i32 [T, k]); they are read instead where somebody has them.
  template <class F>
  void make_rows(std::initializer_list<const Buffer*> outputs, const F& launch, const View& slot_of = {}) {
    if (options_.row_values == RowValues::operations && (options_.row_sink || options_.row_source)) make_or_read(outputs, launch, slot_of);
    else launch();
  }

  // KL of the index loss, f32 [tape rows, 1] a layer that owns an indexer (after backward).
  std::vector<Buffer>& index_losses() { return index_losses_; }
  // Counter cells for kernels of one shape, from 0 on; none when counting is off.
  View keys_read(std::int64_t rows, std::int64_t heads) { return cells(keys_read_, rows, heads); }
  View expert_rows(std::int64_t rows) { return cells(rows_made_, rows, 1); }
  // The work counters of this rank's kernels in the forward; waits for the stream. Of layers recomputed by the backward only rows are counted.
  ForwardCounts counts();

 private:
  Rows with_first_key(Rows rows) const {
    rows.first_key = options_.first_key;
    return rows;
  }
  View cells(std::vector<Buffer>& of, std::int64_t rows, std::int64_t cols);
  void record_node(int node, Inputs inputs, Adjoint adjoint);
  void save_recompute(Tensor& y, Inputs inputs, Recompute recompute);
  Tensor checkpointed_segment(const Tensor& input, SegmentBody body);
  Tensor read_segment(const Tensor& input, SegmentBody body);
  void leave_segment(const Tensor& y);
  void make_or_read(std::initializer_list<const Buffer*> outputs, const std::function<void()>& launch, const View& slot_of);
  void read_slots(std::int64_t value, const View& slots, const View& slot_of);
  Buffer slots_by_row(const View& slots, const View& slot_of);
  // The adjoint of a segment of which its input alone was saved. `compared`: with the source's rows of that segment; -1: with none.
  InputGradients segment_again(const Buffer& input, const SegmentBody& body, const Buffer& dy, bool requires_grad, std::int64_t compared);

  Backend& backend_;
  const Manifest& manifest_;
  const Profile& profile_;
  const WeightSet& weights_;
  KvCache& cache_;
  const Batch& batch_;
  RopeTables ropes_;
  ForwardOptions options_;
  Tape* tape_;
  const Sharding* sharding_;
  Buffer flags_, taped_flags_;
  std::vector<Buffer> index_losses_, keys_read_, rows_made_;
  std::int64_t values_ = 0;  // of ForwardOptions::row_values, so far in the forward
  SegmentRows segment_rows_;
};

}  // namespace lockstep
