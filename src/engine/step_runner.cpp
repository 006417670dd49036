#include "engine/step_runner.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "engine/sampling_rows.h"
#include "model/operations/head.h"

namespace lockstep {

namespace {
// Logits at a time: the matrix of all rows never stands whole, however large the vocabulary.
constexpr std::int64_t kLogitsChunk = std::int64_t{1} << 21;
constexpr std::int64_t kScoredChunkRows = 64;

// Runs of slices under one adapter.
std::vector<AdapterRows> adapter_rows(const std::vector<PlannedSlice>& plan) {
  std::vector<AdapterRows> rows;
  std::int64_t row = 0;
  for (const PlannedSlice& p : plan) {
    const AdapterWeights* adapter = p.sequence->adapter.get();
    if (adapter && (rows.empty() || rows.back().weights != adapter)) rows.push_back({adapter, nullptr, row, row});
    row += p.count;
    if (adapter) rows.back().end = row;
  }
  return rows;
}
}  // namespace

StepRunner::StepRunner(Runtime& runtime, std::int64_t pages, std::int64_t page_size, const Sharding* sharding)
    : runtime_(runtime), sharding_(sharding),
      cache_(runtime.backend, sharding ? sharding->cache_shapes(*runtime.model) : runtime.model->cache_shapes(),
             runtime.profile, pages, page_size) {}

void StepRunner::run(const WeightSet& weights, const std::vector<PlannedSlice>& plan, StepResult& result) {
  StepRecord::Sizes sizes;
  slices_.resize(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const PlannedSlice& p = plan[i];
    const auto first = p.sequence->tokens.begin() + p.begin;
    slices_[i].tokens.assign(first, first + p.count);
    slices_[i].begin = p.begin;
    slices_[i].pages.assign(p.sequence->pages.begin(), p.sequence->pages.end());
    sizes.samples += samples(p);
    sizes.scored += scored_rows(p) * scored_columns(*p.sequence);
    sizes.drawn += scored_rows(p) * p.sequence->prompt_draws;
    if (p.sequence->tells_experts) {
      sizes.sampled_experts += samples(p);
      sizes.prompt_experts += scored_rows(p);
      sizes.experts = runtime_.model->facts().expert_shape().row();
    }
    if (!tells_top(*p.sequence)) continue;
    sizes.sampled_top += samples(p);
    sizes.prompt_top += scored_rows(p);
    sizes.top = std::max<std::int64_t>(sizes.top, p.sequence->sampling.top_logprobs);
  }
  Backend& backend = runtime_.backend;
  const Batch batch(backend, slices_, cache_.page_size, false);
  const std::vector<AdapterRows> adapters = adapter_rows(plan);
  ForwardOptions options;
  if (!adapters.empty()) options.adapters = &adapters;
  const StepRecord record(backend.device(), sizes);
  Buffer expert_rows;
  if (first() && sizes.sampled_experts + sizes.prompt_experts > 0) options.expert_record = experts_wanted(plan, record, expert_rows);
  Context context = runtime_.context(weights, cache_, batch, options, nullptr, sharding_);
  const Tensor hidden = runtime_.model->forward(context);
  if (sizes.scored > 0) score_prompts(context, plan, hidden.view(), record);
  if (sizes.prompt_top > 0) likeliest_of_prompts(context, plan, hidden.view(), record);
  if (sizes.drawn > 0) draw_at_prompts(context, plan, hidden.view(), record);
  if (sizes.samples > 0) sample(context, plan, hidden.view(), record);
  result.pooled.clear();
  std::int64_t row = 0;
  for (const PlannedSlice& p : plan) {
    row += p.count;
    const std::int64_t pooled = pooled_rows(p);
    if (pooled > 0 && first()) result.pooled.push_back(backend.stream().read(hidden.view().row_range(row - pooled, pooled)).get());
  }
  if (!first()) {
    backend.stream().synchronize();
    result.work = context.counts();
    return;
  }
  result.row_flags = backend.stream().read_ints(context.flags()).get();
  result.work = context.counts();
  record.read(backend.stream(), result);
}

ExpertRecord StepRunner::experts_wanted(const std::vector<PlannedSlice>& plan, const StepRecord& record, Buffer& keep) {
  std::vector<std::int32_t> rows, of_prompts;
  std::int64_t begin = 0;
  for (const PlannedSlice& p : plan) {
    if (p.sequence->tells_experts) {
      for (std::int64_t i = 0; i < scored_rows(p); ++i) of_prompts.push_back(static_cast<std::int32_t>(begin + i));
      if (samples(p)) rows.push_back(static_cast<std::int32_t>(begin + p.count - 1));
    }
    begin += p.count;
  }
  rows.insert(rows.end(), of_prompts.begin(), of_prompts.end());
  keep = runtime_.backend.device().upload(rows, static_cast<std::int64_t>(rows.size()), 1, MemoryCategory::activations);
  return {record.experts(), keep.view()};
}

// The adapters' part of logits y, of the rows that sampling_[begin] and those after it sample from.
void StepRunner::add_adapters(Context& context, const View& y, const View& hidden, const View& index, std::int64_t begin) {
  for (std::int64_t row = 0, end = 0; row < y.rows; row = end) {
    const auto adapter_of = [&](std::int64_t r) { return sampling_[static_cast<std::size_t>(begin + r)]->adapter.get(); };
    const AdapterWeights* adapter = adapter_of(row);
    for (end = row + 1; end < y.rows && adapter_of(end) == adapter;) ++end;
    add_adapter_logits(context, y.row_range(row, end - row), hidden, index.row_range(row, end - row), runtime_.model->facts().head, adapter);
  }
}

void StepRunner::score_prompts(Context& context, const std::vector<PlannedSlice>& plan, const View& hidden,
                               const StepRecord& record) {
  Backend& backend = runtime_.backend;
  const Model& model = *runtime_.model;
  integers_.clear();
  std::int64_t longest = 0;
  for (const PlannedSlice& p : plan) {
    const std::int64_t n = scored_rows(p), k = p.sequence->prompt_targets_per_row;
    for (std::int64_t row = p.begin; row < p.begin + n; ++row) {
      integers_.push_back(p.sequence->tokens[static_cast<std::size_t>(row) + 1]);
      const auto more = p.sequence->prompt_targets.begin() + row * k;
      integers_.insert(integers_.end(), more, more + k);
    }
    longest = std::max(longest, n);
  }
  const Buffer targets =
      backend.device().upload(integers_, static_cast<std::int64_t>(integers_.size()), 1, MemoryCategory::activations);
  const Buffer chunk = backend.device().allocate(DType::f32, std::min(longest, kScoredChunkRows),
                                                 context.packed(model.facts().head).outputs, MemoryCategory::workspace);
  std::int64_t row = 0, out = 0;
  for (const PlannedSlice& p : plan) {
    const std::int64_t n = scored_rows(p), columns = scored_columns(*p.sequence);
    if (n > 0) {
      HeadLoss head;
      head.logprob = record.logprobs().row_range(out, n * columns).reshape(n, columns);
      head.flags = context.flags().row_range(row, n);
      head.x = hidden.row_range(row, n);
      head.w = context.packed(model.facts().head);
      head.target = targets.view().row_range(out, n * columns).reshape(n, columns);
      head.round_input_bf16 = runtime_.profile.bf16_activations;
      head.logits_chunk = chunk.view();
      const AdapterRows adapter{p.sequence->adapter.get()};
      head_loss(context, head, model.facts().head, adapter.weights ? &adapter : nullptr);
      out += n * columns;
    }
    row += p.count;
  }
}

// The rows of score_prompts again, as logits: only where a request asks for more than its own tokens.
template <class W, class F>
void StepRunner::each_prompt_chunk(Context& context, const std::vector<PlannedSlice>& plan, const View& hidden, const W& wants, const F& told) {
  Backend& backend = runtime_.backend;
  const Model& model = *runtime_.model;
  const Buffer chunk =
      backend.device().allocate(DType::f32, kScoredChunkRows, model.facts().vocabulary, MemoryCategory::workspace);
  std::int64_t row = 0;
  for (const PlannedSlice& p : plan) {
    const std::int64_t n = wants(*p.sequence) ? scored_rows(p) : 0;
    for (std::int64_t begin = 0; begin < n; begin += kScoredChunkRows) {
      const std::int64_t rows = std::min(kScoredChunkRows, n - begin);
      integers_.clear();
      for (std::int64_t i = 0; i < rows; ++i) integers_.push_back(static_cast<std::int32_t>(row + begin + i));
      const Buffer index = backend.device().upload(integers_, rows, 1, MemoryCategory::activations);
      const View z = chunk.view().row_range(0, rows);
      head_logits(context, z, hidden, index.view(), model.facts().head);
      add_adapter_logits(context, z, hidden, index.view(), model.facts().head, p.sequence->adapter.get());
      if (first()) told(p, row + begin, begin, z);
    }
    row += p.count;
  }
}

void StepRunner::likeliest_of_prompts(Context& context, const std::vector<PlannedSlice>& plan,
                                      const View& hidden, const StepRecord& record) {
  Backend& backend = runtime_.backend;
  std::int64_t out = 0;
  each_prompt_chunk(context, plan, hidden, tells_top, [&](const PlannedSlice& p, std::int64_t, std::int64_t, const View& z) {
    integers_.clear();  // a row of the chunk, how many tokens
    for (std::int64_t i = 0; i < z.rows; ++i)
      for (std::int64_t value : {i, std::int64_t{p.sequence->sampling.top_logprobs}}) integers_.push_back(static_cast<std::int32_t>(value));
    const Buffer integers = backend.device().upload(integers_, z.rows, 2, MemoryCategory::activations);
    TopTokens top;
    top.id = record.prompt_top_id().row_range(out, z.rows);
    top.logprob = record.prompt_top_logprob().row_range(out, z.rows);
    top.logits = z;
    top.row = integers.view().column_range(0, 1);
    top.count = integers.view().column_range(1, 1);
    top.maximum_leaves = runtime_.profile.maximum_leaves;
    backend.launch(&KernelTable::top_tokens, top);
    out += z.rows;
  });
}

// Tokens that might have stood at prompt positions. Their noise is that of samples which no request has.
void StepRunner::draw_at_prompts(Context& context, const std::vector<PlannedSlice>& plan, const View& hidden, const StepRecord& record) {
  constexpr std::int64_t kFirstSample = std::int64_t{1} << 30;
  Backend& backend = runtime_.backend;
  std::int64_t out = 0;
  const auto wants = [](const Sequence& s) { return s.prompt_draws > 0; };
  each_prompt_chunk(context, plan, hidden, wants, [&](const PlannedSlice& p, std::int64_t row, std::int64_t first_row, const View& z) {
    const SamplingParameters& s = p.sequence->sampling;
    const std::int64_t draws = p.sequence->prompt_draws, width = 4 + draws;
    // Integers of a row: top_k, position, seed low, seed high, the samples; numbers: temperature, top_p.
    integers_.clear();
    floats_.clear();
    for (std::int64_t i = 0; i < z.rows; ++i) {
      const auto seed_low = static_cast<std::uint32_t>(s.seed), seed_high = static_cast<std::uint32_t>(s.seed >> 32);
      for (std::int32_t value : {0, static_cast<std::int32_t>(p.begin + first_row + i + 1), std::bit_cast<std::int32_t>(seed_low), std::bit_cast<std::int32_t>(seed_high)})
        integers_.push_back(value);
      for (std::int64_t j = 0; j < draws; ++j) integers_.push_back(static_cast<std::int32_t>(kFirstSample + j));
      floats_.push_back(s.temperature);
      floats_.push_back(1.0f);
    }
    const Buffer integers = backend.device().upload(integers_, z.rows, width, MemoryCategory::activations);
    const Buffer floats = backend.device().upload(floats_, z.rows, 2, MemoryCategory::activations);
    const Buffer raw = backend.device().allocate(DType::f32, z.rows, 1, MemoryCategory::workspace);
    const View id = record.drawn_id().row_range(out, z.rows * draws).reshape(z.rows, draws), logprob = record.drawn_logprob().row_range(out, z.rows * draws).reshape(z.rows, draws);
    for (std::int64_t j = 0; j < draws; ++j) {
      Sample sample;
      sample.token = id.column_range(j, 1);
      sample.raw_logprob = raw.view();
      sample.sampling_logprob = logprob.column_range(j, 1);
      sample.flags = context.flags().row_range(row, z.rows);
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

void StepRunner::sample(Context& context, const std::vector<PlannedSlice>& plan, const View& hidden,
                        const StepRecord& record) {
  Backend& backend = runtime_.backend;
  const Model& model = *runtime_.model;
  // Integers of a row: its row in `hidden`, top_k, sample, position, seed low, seed high; numbers: temperature, top_p.
  integers_.clear();
  floats_.clear();
  sampling_.clear();
  std::int32_t row = 0;
  for (const PlannedSlice& p : plan) {
    row += static_cast<std::int32_t>(p.count);
    if (!samples(p)) continue;
    sampling_.push_back(p.sequence);
    const SamplingParameters& s = p.sequence->sampling;
    const auto seed_low = static_cast<std::uint32_t>(s.seed), seed_high = static_cast<std::uint32_t>(s.seed >> 32);
    for (std::int32_t value : {row - 1, s.top_k, s.sample_index, static_cast<std::int32_t>(p.sequence->known()),
                               std::bit_cast<std::int32_t>(seed_low), std::bit_cast<std::int32_t>(seed_high)})
      integers_.push_back(value);
    floats_.push_back(s.temperature);
    floats_.push_back(s.top_p);
  }
  const Buffer integers = backend.device().upload(integers_, record.sizes.samples, 6, MemoryCategory::activations);
  const Buffer floats = backend.device().upload(floats_, record.sizes.samples, 2, MemoryCategory::activations);
  const std::int64_t most = std::clamp<std::int64_t>(kLogitsChunk / model.facts().vocabulary, 16,
                                                     record.sizes.samples > 16 ? record.sizes.samples : 16);
  const Buffer chunk = backend.device().allocate(DType::f32, std::min(most, record.sizes.samples), model.facts().vocabulary,
                                                  MemoryCategory::workspace);
  std::int64_t told = 0;
  for (std::int64_t begin = 0; begin < record.sizes.samples; begin += most) {
    const std::int64_t n = std::min(most, record.sizes.samples - begin);
    const View i = integers.view().row_range(begin, n), f = floats.view().row_range(begin, n),
               z = chunk.view().row_range(0, n);
    head_logits(context, z, hidden, i.column_range(0, 1), model.facts().head);
    if (!first()) continue;
    add_adapters(context, z, hidden, i.column_range(0, 1), begin);
    Sample sample;
    sample.token = record.token().row_range(begin, n);
    sample.raw_logprob = record.raw().row_range(begin, n);
    sample.sampling_logprob = record.sampling().row_range(begin, n);
    sample.flags = record.flags().row_range(begin, n);
    sample.logits = z;
    sample.temperature = f.column_range(0, 1);
    sample.top_p = f.column_range(1, 1);
    sample.top_k = i.column_range(1, 1);
    sample.sample = i.column_range(2, 1);
    sample.position = i.column_range(3, 1);
    sample.seed = i.column_range(4, 2);
    sample.maximum_leaves = runtime_.profile.maximum_leaves;
    const std::span<Sequence* const> of(sampling_.data() + begin, static_cast<std::size_t>(n));
    SamplingRows rows(backend, of, z, runtime_.profile.maximum_leaves);
    rows.attach(sample);
    backend.launch(&KernelTable::sample, sample);
    if (record.sizes.sampled_top > 0)
      told += rows.likeliest(record.sampled_top_id(), record.sampled_top_logprob(), told);
  }
}

}  // namespace lockstep
