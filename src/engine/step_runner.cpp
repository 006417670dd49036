#include "engine/step_runner.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "engine/drafts/verified_rows.h"
#include "engine/draw_table.h"
#include "engine/sampling_rows.h"
#include "kernels/launch.h"
#include "model/operations/head.h"

namespace lockstep {

namespace {
// Logits at a time: the matrix of all rows never stands whole, however large the vocabulary.
constexpr std::int64_t kLogitsChunk = std::int64_t{1} << 21;
constexpr std::int64_t kScoredChunkRows = 64;

// f(first, count) of each run of neighbours among ascending rows.
template <class F>
void each_run(std::span<const std::int32_t> rows, const F& f) {
  for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    for (end = begin + 1; end < rows.size() && rows[end] == rows[end - 1] + 1;) ++end;
    f(begin, end - begin);
  }
}
}  // namespace

const AdapterWeights* StepRunner::adapter_of(const Sequence& sequence) const {
  const AdapterWeights* whole = sequence.adapter.get();
  return whole && shares_ ? &shares_->of(*whole) : whole;
}

// Runs of slices under one adapter.
std::vector<AdapterRows> StepRunner::adapter_rows(const std::vector<PlannedSlice>& plan) const {
  std::vector<AdapterRows> rows;
  std::int64_t row = 0;
  for (const PlannedSlice& p : plan) {
    const AdapterWeights* adapter = adapter_of(*p.sequence);
    if (adapter && (rows.empty() || rows.back().weights != adapter)) rows.push_back({adapter, nullptr, row, row});
    row += p.count;
    if (adapter) rows.back().end = row;
  }
  return rows;
}

StepRunner::StepRunner(Runtime& runtime, std::int64_t pages, std::int64_t page_size, const Sharding* sharding)
    : runtime_(runtime),
      sharding_(sharding),
      cache_(runtime.backend, sharding ? sharding->cache_shapes(*runtime.model, runtime.profile) : runtime.model->cache_shapes(runtime.profile),
             runtime.profile, pages, page_size) {}

void StepRunner::compute(PassingStep& step) {
  if (step.computes()) ++begun_;
  step.compute();
}

void StepRunner::run(const WeightSet& weights, const std::vector<PlannedSlice>& plan, const StepWants& wants, StepResult& result, std::uint64_t whole,
                     RowSource* kept) {
  under_way_.clear();
  PassingStep step(place(), weights, plan, wants, adapter_rows(plan), std::move(slices_), whole, kept);
  step.receive();
  compute(step);
  step.send_on();
  step.bring_back();
  finish(step, result);
  slices_ = step.take_slices();
}

bool StepRunner::turn(bool first_one, const Entering* next, StepResult& result) {
  if (first_one) under_way_.clear();
  const int last = sharding_->stages() - 1, stage = sharding_->place().stage();
  const int comes_at = stage <= last ? stage : 0;  // a stage without segments keeps what it needs for the end from the first turn on
  const auto arrive = [&](UnderWay& one) {
    const Entering& e = one.entering;
    one.here = std::make_unique<PassingStep>(place(), e.weights, e.plan, e.wants, adapter_rows(e.plan), std::vector<SequenceSlice>());
  };
  if (next) {
    under_way_.push_back({*next});
    if (comes_at == 0) arrive(under_way_.back());
  }
  for (UnderWay& one : under_way_)
    if (one.stage == stage) compute(*one.here);
  for (UnderWay& one : under_way_)
    if (one.stage == stage) one.here->send_on();
  for (UnderWay& one : under_way_) {
    if (++one.stage != comes_at) continue;
    arrive(one);
    one.here->receive();
  }
  if (under_way_.empty() || under_way_.front().stage <= last) return false;
  const std::unique_ptr<PassingStep> through = std::move(under_way_.front().here);
  under_way_.pop_front();
  through->bring_back();
  finish(*through, result);
  return true;
}

void StepRunner::finish(PassingStep& through, StepResult& result) {
  Backend& backend = runtime_.backend;
  const StepWants& wants = through.wants();
  const Step step{through.plan(), wants, through.record(), through.context(), through.hidden().view()};
  if (through.leads()) {
    if (wants.rows(Column::scored) > 0) score(step);
    if (wants.rows(Column::scored_top) > 0) likeliest_of_scored(step);
    if (wants.rows(Column::drawn) > 0) draw(step);
    if (wants.rows(Column::sampled) > 0) sample(step);
    if (mtp_ && !through.reads()) mtp_->follow(through.weights(), through.batch(), through.slices(), through.hidden());
  }
  result.wants = &wants;
  if (!first()) {
    backend.stream().synchronize();
    result.work = step.context.counters().read();
    return;
  }
  read_hidden(step, result);
  result.row_flags = backend.stream().read_ints(step.context.flags()).get();
  through.kept().enter(result.row_flags);
  result.work = step.context.counters().read();
  step.record.read(backend.stream(), result);
}

void StepRunner::read_hidden(const Step& step, StepResult& result) {
  result.all_hidden.clear();
  for (std::size_t i = 0; i < step.plan.size(); ++i) {
    const std::span<const std::int32_t> rows = step.wants.of(i, Column::hidden).rows;
    each_run(rows, [&](std::size_t begin, std::size_t count) {
      const View run = step.hidden.row_range(step.wants.row_begin(i) + rows[begin], static_cast<std::int64_t>(count));
      const std::vector<float> values = runtime_.backend.stream().read(run).get();
      result.all_hidden.insert(result.all_hidden.end(), values.begin(), values.end());
    });
  }
}

// The adapters' part of logits y, of the rows that sampled_[begin] and those after it are.
void StepRunner::add_adapters(const Step& step, const View& y, const View& index, std::int64_t begin) {
  for (std::int64_t row = 0, end = 0; row < y.rows; row = end) {
    const auto of_row = [&](std::int64_t r) { return adapter_of(*sampled_[static_cast<std::size_t>(begin + r)].sequence); };
    const AdapterWeights* adapter = of_row(row);
    for (end = row + 1; end < y.rows && of_row(end) == adapter;) ++end;
    add_adapter_logits(step.context, y.row_range(row, end - row), step.hidden, index.row_range(row, end - row), runtime_.model->facts().head, adapter);
  }
}

void StepRunner::score(const Step& step) {
  Backend& backend = runtime_.backend;
  const Model& model = *runtime_.model;
  const auto wanted = [&](std::size_t i) { return step.wants.of(i, Column::scored); };
  integers_.clear();
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < step.plan.size(); ++i) {
    const PlannedSlice& p = step.plan[i];
    const std::int64_t k = p.sequence->prompt_targets_per_row;
    const StepWants::Rows own = wanted(i);
    for (const std::int32_t row : own.rows) {
      integers_.push_back(p.sequence->tokens[static_cast<std::size_t>(p.begin + row) + 1]);
      const auto more = p.sequence->prompt_targets.begin() + (p.begin + row) * k;
      integers_.insert(integers_.end(), more, more + k);
    }
    longest = std::max(longest, static_cast<std::int64_t>(own.size()));
  }
  const Buffer targets = backend.device().upload(integers_, static_cast<std::int64_t>(integers_.size()), 1, MemoryCategory::activations);
  const Buffer chunk =
      backend.device().allocate(DType::f32, std::min(longest, kScoredChunkRows), step.context.packed(model.facts().head).outputs, MemoryCategory::workspace);
  for (std::size_t i = 0; i < step.plan.size(); ++i) {
    const StepWants::Rows own = wanted(i);
    each_run(own.rows, [&](std::size_t begin, std::size_t count) {
      const std::int64_t row = step.wants.row_begin(i) + own.rows[begin], n = static_cast<std::int64_t>(count),
                         cell = own.first_cell + static_cast<std::int64_t>(begin) * own.width;
      HeadLoss head;
      head.logprob = step.record.scored().row_range(cell, n * own.width).reshape(n, own.width);
      head.flags = step.context.flags().row_range(row, n);
      head.x = step.hidden.row_range(row, n);
      head.w = step.context.packed(model.facts().head);
      head.target = targets.view().row_range(cell, n * own.width).reshape(n, own.width);
      head.round_input_bf16 = runtime_.profile.bf16_activations;
      head.logits_chunk = chunk.view();
      const AdapterRows adapter{adapter_of(*step.plan[i].sequence)};
      head_loss(step.context, head, model.facts().head, adapter.weights ? &adapter : nullptr);
    });
  }
}

// Rows of score() again, as logits, neighbours together: only where a request asks for more than its own tokens.
template <class F>
void StepRunner::each_chunk(const Step& step, Column column, const F& told) {
  Backend& backend = runtime_.backend;
  const Model& model = *runtime_.model;
  const Buffer chunk = backend.device().allocate(DType::f32, kScoredChunkRows, model.facts().vocabulary, MemoryCategory::workspace);
  for (std::size_t i = 0; i < step.plan.size(); ++i) {
    const AdapterWeights* adapter = adapter_of(*step.plan[i].sequence);
    const std::span<const std::int32_t> own = step.wants.of(i, column).rows;
    each_run(own, [&](std::size_t run, std::size_t count) {
      constexpr auto kMost = static_cast<std::size_t>(kScoredChunkRows);
      for (std::size_t begin = run; begin < run + count; begin += kMost) {
        const std::span<const std::int32_t> rows = own.subspan(begin, std::min(kMost, run + count - begin));
        const auto n = static_cast<std::int64_t>(rows.size());
        integers_.clear();
        for (const std::int32_t row : rows) integers_.push_back(static_cast<std::int32_t>(step.wants.row_begin(i)) + row);
        const Buffer index = backend.device().upload(integers_, n, 1, MemoryCategory::activations);
        const View z = chunk.view().row_range(0, n);
        head_logits(step.context, z, step.hidden, index.view(), model.facts().head);
        add_adapter_logits(step.context, z, step.hidden, index.view(), model.facts().head, adapter);
        if (first()) told(i, rows, z);
      }
    });
  }
}

void StepRunner::likeliest_of_scored(const Step& step) {
  Backend& backend = runtime_.backend;
  std::int64_t out = 0;
  each_chunk(step, Column::scored_top, [&](std::size_t i, std::span<const std::int32_t>, const View& z) {
    integers_.clear();  // a row of the chunk, how many tokens
    for (std::int64_t row = 0; row < z.rows; ++row)
      for (std::int64_t value : {row, step.wants.of(i, Column::scored_top).width}) integers_.push_back(static_cast<std::int32_t>(value));
    const Buffer integers = backend.device().upload(integers_, z.rows, 2, MemoryCategory::activations);
    TopTokens top;
    top.id = step.record.scored_top_id().row_range(out, z.rows);
    top.logprob = step.record.scored_top_logprob().row_range(out, z.rows);
    top.logits = z;
    top.row = integers.view().column_range(0, 1);
    top.count = integers.view().column_range(1, 1);
    top.maximum_leaves = runtime_.profile.maximum_leaves;
    backend.launch(&KernelTable::top_tokens, top);
    out += z.rows;
  });
}

// Tokens that might have stood at prompt positions. Their noise is that of samples which no request has.
void StepRunner::draw(const Step& step) {
  constexpr std::int64_t kFirstSample = std::int64_t{1} << 30;
  Backend& backend = runtime_.backend;
  std::int64_t out = 0;
  each_chunk(step, Column::drawn, [&](std::size_t slice, std::span<const std::int32_t> rows, const View& z) {
    const PlannedSlice& p = step.plan[slice];
    const SamplingParameters& s = p.sequence->sampling;
    const std::int64_t draws = p.sequence->prompt_draws, width = 4 + draws;
    // Integers of a row: top_k, position, seed low, seed high, the samples; numbers: temperature, top_p.
    integers_.clear();
    floats_.clear();
    for (const std::int32_t row : rows) {
      const auto seed_low = static_cast<std::uint32_t>(s.seed), seed_high = static_cast<std::uint32_t>(s.seed >> 32);
      for (std::int32_t value :
           {0, static_cast<std::int32_t>(p.begin) + row + 1, std::bit_cast<std::int32_t>(seed_low), std::bit_cast<std::int32_t>(seed_high)})
        integers_.push_back(value);
      for (std::int64_t j = 0; j < draws; ++j) integers_.push_back(static_cast<std::int32_t>(kFirstSample + j));
      floats_.push_back(s.temperature);
      floats_.push_back(1.0f);
    }
    const Buffer integers = backend.device().upload(integers_, z.rows, width, MemoryCategory::activations);
    const Buffer floats = backend.device().upload(floats_, z.rows, 2, MemoryCategory::activations);
    const Buffer raw = backend.device().allocate(DType::f32, z.rows, 1, MemoryCategory::workspace);
    const View id = step.record.drawn_id().row_range(out, z.rows * draws).reshape(z.rows, draws),
               logprob = step.record.drawn_logprob().row_range(out, z.rows * draws).reshape(z.rows, draws);
    for (std::int64_t j = 0; j < draws; ++j) {
      Sample sample;
      sample.token = id.column_range(j, 1);
      sample.raw_logprob = raw.view();
      sample.sampling_logprob = logprob.column_range(j, 1);
      sample.flags = step.context.flags().row_range(step.wants.row_begin(slice) + rows.front(), z.rows);
      sample.logits = z;
      sample.temperature = floats.view().column_range(0, 1);
      sample.top_p = floats.view().column_range(1, 1);
      sample.top_k = integers.view().column_range(0, 1);
      sample.position = integers.view().column_range(1, 1);
      sample.seed = integers.view().column_range(2, 2);
      sample.sample = integers.view().column_range(4 + j, 1);
      sample.maximum_leaves = runtime_.profile.maximum_leaves;
      backend.launch(&KernelTable::sample, sample);
    }
    out += z.rows * draws;
  });
}

void StepRunner::sample(const Step& step) {
  Backend& backend = runtime_.backend;
  const Model& model = *runtime_.model;
  DrawTable table;
  sampled_.clear();
  for (std::size_t i = 0; i < step.plan.size(); ++i) {
    const PlannedSlice& p = step.plan[i];
    const std::span<const std::int32_t> rows = step.wants.of(i, Column::sampled).rows, tops = step.wants.of(i, Column::sampled_top).rows;
    const StepWants::Rows kept = step.wants.of(i, Column::kept);
    std::int64_t nth = 0;
    for (const std::int32_t row : rows) {
      const auto at = std::lower_bound(kept.rows.begin(), kept.rows.end(), row);
      const bool tells_kept = at != kept.rows.end() && *at == row;
      sampled_.push_back(
          {p.sequence, p.begin + row + 1, nth++, std::binary_search(tops.begin(), tops.end(), row), tells_kept ? kept.first + (at - kept.rows.begin()) : -1});
      table.add(step.wants.row_begin(i) + row, p.sequence->sampling, p.begin + row + 1);
    }
  }
  const auto samples = static_cast<std::int64_t>(sampled_.size());
  table.upload(backend);
  const std::int64_t most = std::clamp<std::int64_t>(kLogitsChunk / model.facts().vocabulary, 16, samples > 16 ? samples : 16);
  const Buffer chunk = backend.device().allocate(DType::f32, std::min(most, samples), model.facts().vocabulary, MemoryCategory::workspace);
  std::int64_t told = 0;
  for (std::int64_t begin = 0; begin < samples; begin += most) {
    const std::int64_t n = std::min(most, samples - begin);
    const View z = chunk.view().row_range(0, n), hidden = table.hidden(begin, n);
    head_logits(step.context, z, step.hidden, hidden, model.facts().head);
    add_adapters(step, z, hidden, begin);
    if (!first()) continue;
    Sample sample = table.sample(begin, n, z);
    sample.token = step.record.token().row_range(begin, n);
    sample.raw_logprob = step.record.raw().row_range(begin, n);
    sample.sampling_logprob = step.record.sampling().row_range(begin, n);
    sample.flags = step.record.flags().row_range(begin, n);
    sample.maximum_leaves = runtime_.profile.maximum_leaves;
    SamplingRows rows(backend, std::span<const SampledRow>(sampled_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n)), z,
                      runtime_.profile.maximum_leaves);
    rows.attach(sample, step.record.kept());
    const VerifiedRows verified(backend, std::span<const SampledRow>(sampled_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n)), sample);
    backend.launch(&KernelTable::sample, sample);
    if (step.wants.rows(Column::sampled_top) > 0) told += rows.likeliest(step.record.sampled_top_id(), step.record.sampled_top_logprob(), told);
  }
}

}  // namespace lockstep
