#include "model/context.h"

#include <future>
#include <utility>

#include "kernels/launch.h"

namespace lockstep {

Context::Context(Backend& backend, const Manifest& manifest, const Profile& profile, const WeightSet& weights, KvCache& cache, const Batch& batch,
                 const RopeTables& ropes, const ForwardOptions& options, Tape* tape, const Sharding* sharding)
    : backend_(backend),
      manifest_(manifest),
      profile_(profile),
      weights_(weights),
      cache_(cache),
      batch_(batch),
      ropes_(ropes),
      options_(options),
      tape_(tape),
      sharding_(sharding),
      flags_(backend.device().allocate_zero(DType::i32, batch.count(), 1, MemoryCategory::activations)) {
  if (options_.observer) options_.observer->begin_forward(backend, batch);
}

Tensor Context::of_rows(Buffer buffer) const {
  Tensor x{std::move(buffer)};
  if (batch_.source()) x.tape_rows = std::make_shared<TapeRows>(TapeRows{batch_.source(), {}});
  return x;
}

Tensor Context::output_like(const Tensor& x, std::int64_t cols) {
  Tensor y{allocate(DType::f32, x.view().rows, cols)};
  if (x.tape_rows) y.tape_rows = std::make_shared<TapeRows>(TapeRows{x.tape_rows->source, {}});
  return y;
}

namespace {
std::vector<Tensor> saved(Inputs inputs) {
  std::vector<Tensor> tensors;
  tensors.reserve(inputs.size());
  for (const Input& x : inputs) tensors.push_back(x.tensor.saved());
  return tensors;
}
}  // namespace

void Context::save_recompute(Tensor& y, Inputs inputs, Recompute recompute) {
  y.recomputed = std::make_shared<Recomputed>([this, inputs = saved(inputs), recompute = std::move(recompute), rows = y.view().rows, cols = y.view().cols] {
    std::vector<View> views;
    for (const Tensor& x : inputs) views.push_back(x.view());
    Buffer again = allocate(DType::f32, rows, cols);
    recompute(again.view(), views);
    return again;
  });
}

void Context::observe(std::string_view name, const View& output, ParameterId parameter, int layer, const View& slot_of) const {
  if (!options_.observer) return;
  const std::string_view of = parameter < 0 ? std::string_view() : manifest_.parameter(parameter).name;
  options_.observer->operation({name, of, layer, output, slot_of});
}

View RecordedInputs::operator[](std::size_t i) const { return context_.taped(inputs_[i]); }

void Context::record_node(int node, Inputs all, Adjoint adjoint) {
  tape_->record([this, node, inputs = saved(all), adjoint = std::move(adjoint)] {
    const Buffer dy = tape_->take(node);
    if (!dy && node >= 0) return;
    InputGradients gradients = adjoint(dy, RecordedInputs(*this, inputs));
    for (std::size_t i = gradients.size(); i-- > 0;)
      if (gradients[i]) tape_->contribute(inputs[i].node, std::move(gradients[i]));
  });
}

View Context::taped(const Tensor& x) {
  if (!x.tape_rows) return x.view();
  TapeRows& rows = *x.tape_rows;
  if (!rows.buffer) {
    const View from = x.view();
    rows.buffer = allocate(from.dtype, rows.source.rows, from.cols);
    launch(&KernelTable::gather_rows, GatherRows{rows.buffer.view(), from, rows.source});
  }
  return rows.buffer.view();
}

View Context::taped_flags() {
  if (!batch_.source()) return flags_.view();
  taped_flags_ = allocate(DType::i32, batch_.tape_count(), 1);
  launch(&KernelTable::gather_rows, GatherRows{taped_flags_.view(), flags_.view(), batch_.source()});
  return taped_flags_.view();
}

Tensor Context::checkpointed_segment(const Tensor& input, SegmentBody body) {
  Tape* tape = std::exchange(tape_, nullptr);
  Tensor y = body(*this, input.detached());
  tape_ = tape;
  // Adapters inside may be trained even when the input requires no gradient.
  record(
      y, {input.linked()},
      [this, buffer = input.buffer, body = std::move(body)](const Buffer& dy, const RecordedInputs& x) -> InputGradients {
        Tape* outer = tape_;
        Tape inner(backend_, outer->gradients());
        const ForwardOptions options = options_;
        options_.checkpoint = false;
        options_.router_loads = nullptr;  // already counted in the forward
        options_.counts = false;
        if (options_.observer) options_.observer->replay_segment();
        tape_ = &inner;
        Tensor again = of_rows(buffer);
        if (x.requires_grad(0) || !inner.frozen()) again.node = inner.new_node();
        const Tensor y2 = body(*this, again);
        inner.contribute(y2.node, dy);
        inner.backward();
        Buffer dx = inner.take(again.node);
        tape_ = outer;
        options_ = options;
        return {dx};
      },
      true);
  return y;
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
  std::vector<std::pair<std::int64_t*, std::future<std::vector<std::int32_t>>>> reads;  // all reads are issued before the first is awaited
  for (const Buffer& b : keys_read_) reads.emplace_back(&counts.pairs_read, backend_.stream().read_ints(b.view()));
  for (const Buffer& b : rows_made_) reads.emplace_back(&counts.expert_rows, backend_.stream().read_ints(b.view()));
  for (auto& [sum, read] : reads)
    for (const std::int32_t n : read.get()) *sum += n;
  return counts;
}

}  // namespace lockstep
