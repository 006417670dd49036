#include "model/context.h"

#include <future>
#include <numeric>
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
  const std::int64_t first_value = values_;
  Tape* tape = std::exchange(tape_, nullptr);
  Tensor y = body(*this, input.detached());
  tape_ = tape;
  // Adapters inside may be trained even when the input requires no gradient.
  record(
      y, {input.linked()},
      [this, first_value, buffer = input.buffer, body = std::move(body)](const Buffer& dy, const RecordedInputs& x) -> InputGradients {
        values_ = first_value;
        const ForwardOptions options = options_;
        options_.router_loads = nullptr;  // already counted in the forward
        InputGradients gradients = segment_again(buffer, body, dy, x.requires_grad(0), -1);
        options_ = options;
        return gradients;
      },
      true);
  return y;
}

InputGradients Context::segment_again(const Buffer& input, const SegmentBody& body, const Buffer& dy, bool requires_grad, std::int64_t compared) {
  Tape* outer = tape_;
  Tape inner(backend_, outer->gradients());
  const ForwardOptions options = options_;
  if (options_.counts) segment_rows_.again += batch_.count();
  options_.checkpoint = false;
  options_.counts = false;
  if (options_.observer) options_.observer->replay_segment();
  tape_ = &inner;
  Tensor again = of_rows(input);
  if (requires_grad || !inner.frozen()) again.node = inner.new_node();
  const Tensor y = body(*this, again);
  if (compared >= 0) options_.row_source->compare(compared, y.view());
  inner.contribute(y.node, dy);
  inner.backward();
  Buffer dx = inner.take(again.node);
  tape_ = outer;
  options_ = options;
  return {dx};
}

// What leaves the segment is gathered when it is first read: of all segments but the last that is in the backward, of one at a time.
Tensor Context::read_segment(const Tensor& input, SegmentBody body) {
  RowSource* source = options_.row_source;
  const std::int64_t segment = values_++, rows = batch_.count();
  if (options_.counts) segment_rows_.read += source->rows_read();
  const auto rows_of = [this, source, rows](std::int64_t value) {
    Buffer y = allocate(DType::f32, rows, source->width(value));
    source->read(value, y.view());
    return y;
  };
  const auto input_rows = [rows_of, segment, buffer = input.buffer] { return buffer ? buffer : rows_of(segment - 1); };
  Tensor y = of_rows({});
  y.recomputed = std::make_shared<Recomputed>([rows_of, segment] { return rows_of(segment); });
  if (!tape_ && source->recomputes()) {
    if (options_.counts) segment_rows_.again += batch_.count();
    source->compare(segment, body(*this, of_rows(input_rows())).view());
  }
  record(
      y, {input.linked()},
      [this, segment, input_rows, body = std::move(body)](const Buffer& dy, const RecordedInputs& x) -> InputGradients {
        return segment_again(input_rows(), body, dy, x.requires_grad(0), segment);
      },
      true);
  return y;
}

void Context::leave_segment(const Tensor& y) {
  const RowSource* source = options_.row_source;
  if (options_.counts) {
    (source ? segment_rows_.read : segment_rows_.made) += source ? source->rows_read() : batch_.count();
    if (source && source->recomputes()) segment_rows_.again += batch_.count();
  }
  if (options_.row_values == RowValues::segments && options_.row_sink) options_.row_sink->output(values_++, y.view(), y.buffer);
}

void Context::make_or_read(std::initializer_list<const Buffer*> outputs, const std::function<void()>& launch, const View& slot_of) {
  RowSource* source = options_.row_source;
  const bool computes = !source || source->recomputes();
  if (computes) launch();
  for (const Buffer* y : outputs) {
    const std::int64_t value = values_++;
    if (!computes) {
      if (slot_of) read_slots(value, y->view(), slot_of);
      else source->read(value, y->view());
      continue;
    }
    const Buffer by_row = slot_of ? slots_by_row(y->view(), slot_of) : *y;
    if (source) source->compare(value, by_row.view());
    else options_.row_sink->output(value, by_row.view(), by_row);
  }
}

// Of each row its slots, one after another.
Buffer Context::slots_by_row(const View& slots, const View& slot_of) {
  Buffer by_row = allocate(DType::f32, slot_of.rows, slot_of.cols * slots.cols);
  launch(&KernelTable::gather_rows, GatherRows{by_row.view().reshape(slots.rows, slots.cols), slots, slot_of.reshape(slots.rows, 1)});
  return by_row;
}

void Context::read_slots(std::int64_t value, const View& slots, const View& slot_of) {
  std::vector<std::int32_t> ascending(static_cast<std::size_t>(slots.rows));
  std::iota(ascending.begin(), ascending.end(), 0);
  const Buffer numbers = backend_.device().upload(ascending, slots.rows, 1, MemoryCategory::activations), place = allocate(DType::i32, slots.rows, 1),
               by_row = allocate(DType::f32, slot_of.rows, slot_of.cols * slots.cols);
  const View row = numbers.view().row_range(0, slot_of.rows), number = numbers.view().reshape(slot_of.rows, slot_of.cols);
  launch(&KernelTable::slot_source, SlotSource{place.view(), slot_of, row, number});
  options_.row_source->read(value, by_row.view());
  launch(&KernelTable::gather_rows, GatherRows{slots, by_row.view().reshape(slots.rows, slots.cols), place.view()});
}

View Context::cells(std::vector<Buffer>& of, std::int64_t rows, std::int64_t cols) {
  if (!options_.counts || options_.row_source) return {};
  for (const Buffer& b : of)
    if (b.view().rows == rows && b.view().cols == cols) return b.view();
  of.push_back(backend_.device().allocate_zero(DType::i32, rows, cols, MemoryCategory::activations));
  return of.back().view();
}

ForwardCounts Context::counts() {
  ForwardCounts counts;
  counts.segment_rows = segment_rows_;
  std::vector<std::pair<std::int64_t*, std::future<std::vector<std::int32_t>>>> reads;  // all reads are issued before the first is awaited
  for (const Buffer& b : keys_read_) reads.emplace_back(&counts.pairs_read, backend_.stream().read_ints(b.view()));
  for (const Buffer& b : rows_made_) reads.emplace_back(&counts.expert_rows, backend_.stream().read_ints(b.view()));
  for (auto& [sum, read] : reads)
    for (const std::int32_t n : read.get()) *sum += n;
  return counts;
}

}  // namespace lockstep
