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
#include <utility>
#include <vector>

#include "model/forward_options.h"
#include "model/kv_cache.h"
#include "model/recording.h"
#include "model/segment_weights.h"
#include "model/weights.h"
#include "model/work_counters.h"

namespace lockstep {

class Sharding;

// Some rows of a forward's, of which operations are run that work on each row by itself.
struct RowPart {
  const Batch& rows;
  std::int64_t begin;  // the first of them
};

class Context {
 public:
  Context(Backend& backend, const Manifest& manifest, const Profile& profile, const WeightSet& weights, KvCache& cache, const Batch& batch,
          const RopeTables& ropes, const ForwardOptions& options, Tape* tape, const Sharding* sharding = nullptr);

  Backend& backend() { return backend_; }
  const Profile& profile() const { return profile_; }
  const Batch& batch() const { return *batch_; }
  const ForwardOptions& options() const { return options_; }
  const Sharding* sharding() const { return sharding_; }  // null: no ranks share the model
  const RopeAngles& rope(RopeUse use) const { return ropes_[static_cast<std::size_t>(use)]; }
  KvCache::Layer& cache(int layer) { return cache_.layers[static_cast<std::size_t>(layer)]; }
  Tape* tape() { return tape_; }                                             // null: nothing is recorded
  GradientSet* gradients() { return tape_ ? tape_->gradients() : nullptr; }  // of parameters; null: none are computed
  const Parameter& parameter(ParameterId id) const { return manifest_.parameter(id); }
  const View& weight(ParameterId id) const {
    const Buffer& whole = weights_.parameters[static_cast<std::size_t>(id)];
    if (options_.segment_weights && !whole) refuse_weight(parameter(id));
    return whole.view();
  }
  PackedWeight packed(ParameterId id) const {
    if (options_.segment_weights) weight(id);
    return packed_weight(manifest_, weights_, id, profile_);
  }
  const View& flags() const { return flag_rows_; }  // i32 [T, 1]: what went wrong in a row (kernels/*/*.h)

  template <class Arguments>
  void launch(void (*KernelTable::*kernel)(const Arguments&, ThreadPool&), const Arguments& arguments) {
    backend_.launch(kernel, arguments);
  }
  Buffer allocate(DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category = MemoryCategory::activations) {
    return backend_.device().allocate(dtype, rows, cols, category);
  }
  Buffer allocate_tape(std::int64_t cols) { return allocate(DType::f32, batch_->tape_count(), cols); }
  // An activation with the batch's rows, f32 [T, cols], not yet written.
  Tensor output(std::int64_t cols) { return of_rows(*batch_, allocate(DType::f32, batch_->count(), cols)); }
  // f32 with the rows of x, whatever they are.
  Tensor output_like(const Tensor& x, std::int64_t cols);
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
    record_adjoint(*this, node, inputs, std::forward<F>(adjoint));
    y.node = node;  // y may be among the inputs
  }
  // The same for a loss: the backward calls it without an output gradient.
  template <class F>
  void record_loss(Inputs inputs, F&& adjoint) {
    if (tape_) record_adjoint(*this, -1, inputs, std::forward<F>(adjoint));
  }
  // Runs body() with another tape (null: none) and other options, then goes back to those of before: how a segment is computed again. `part`: of these
  // rows alone (model/operations/row_tiles.h); null: of all.
  template <class F>
  auto with(Tape* tape, ForwardOptions options, const F& body, const RowPart* part = nullptr) {
    Tape* const outer = std::exchange(tape_, tape);
    const ForwardOptions before = std::exchange(options_, std::move(options));
    const Batch* const all = std::exchange(batch_, part ? &part->rows : batch_);
    const View flags = std::exchange(flag_rows_, part ? flag_rows_.row_range(part->begin, part->rows.count()) : flag_rows_);
    auto result = body();
    tape_ = outer;
    options_ = before;
    batch_ = all;
    flag_rows_ = flags;
    return result;
  }

  // What operations with a loss of their own (record_loss) computed, f32 [tape rows, 1] each, in their order; after the backward.
  std::vector<Buffer>& losses() { return losses_; }
  WorkCounters& counters() { return counters_; }
  // The number of the next value of ForwardOptions::row_values (model/row_values.h).
  std::int64_t& next_row_value() { return next_row_value_; }

 private:
  Backend& backend_;
  const Manifest& manifest_;
  const Profile& profile_;
  const WeightSet& weights_;
  KvCache& cache_;
  const Batch* batch_;
  RopeTables ropes_;
  ForwardOptions options_;
  Tape* tape_;
  const Sharding* sharding_;
  Buffer flags_;
  View flag_rows_;  // of flags_
  std::vector<Buffer> losses_;
  WorkCounters counters_;
  std::int64_t next_row_value_ = 0;
};

}  // namespace lockstep
