#include "train/forward_pass.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "kernels/launch.h"
#include "model/operations/head.h"
#include "model/operations/value_head.h"
#include "model/value_head.h"
#include "observe/trace.h"
#include "train/kept_forward.h"
#include "train/kept_passes.h"
#include "train/loss_columns.h"
#include "train/rank_record.h"
#include "train/value_loss.h"

namespace lockstep {

// One job's part of a pass: its rows, and the head's inputs and outputs for them.
struct ForwardPass::JobRows {
  RowPlan plan;                     // of the job alone
  std::size_t first_slice = 0;      // in the batch
  std::int64_t begin = 0, end = 0;  // rows of the tape
  std::optional<LossColumns> columns;
  Buffer logprob, entropy, loss, marks, log_sum, slope, entropy_slope;
  std::int64_t count() const { return end - begin; }
  // Clears the head's inputs and outputs, so that it can run again.
  void clear_head() {
    columns.reset();
    for (Buffer* b : {&logprob, &entropy, &loss, &marks, &log_sum, &slope, &entropy_slope}) *b = Buffer();
  }
};

// A forward and everything its backward reads. It does not move: records of the tape point into it.
struct ForwardPass::Pass : KeptPass {
  std::vector<JobRows> rows;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<const Batch> batch;
  std::vector<AdapterRows> adapters;
  std::vector<Buffer> router_loads;   // of a kept forward: added to the loads when its backward runs
  std::unique_ptr<KeptForward> kept;  // null: the pass computes all its rows
  std::optional<Tape> tape;
  std::optional<Context> context;
  Tensor hidden;
  View row_flags;
  Buffer gathered_flags;  // where row_flags had to be gathered
  ForwardCounts asked;    // expected work counts, from lengths
};

ForwardPass::ForwardPass(Runtime& runtime, const TrainerOptions& options, const Sharding* sharding)
    : runtime_(runtime), options_(options), sharding_(sharding) {}

void ForwardPass::run(const WeightSet& weights, const Settings& settings, const std::vector<Job>& jobs) {
  const bool one_job = jobs.size() == 1 && !sharding_ && options_.kept && !settings.index.dense_attention && !settings.index.index_loss;
  if (one_job && settings.gradient) {
    if (std::unique_ptr<Pass> pass = kept_before(weights, settings, jobs)) {
      finish(*pass, settings, jobs);
      return add_router_loads(*pass, settings);
    }
  }
  PassKey key;
  bool keep = one_job && settings.keep && !settings.gradient;
  if (keep) {
    key = pass_key(jobs[0].adapter ? jobs[0].adapter_gradients : settings.gradients, weights, jobs[0].adapter, *jobs[0].data, jobs[0].part);
    keep = options_.kept->make_room(static_cast<std::int64_t>(bytes_a_row_ * static_cast<double>(key.rows())));
  }
  const std::int64_t bytes_before = pass_bytes();
  std::unique_ptr<Pass> pass = forward(weights, settings, jobs, keep);
  finish(*pass, settings, jobs);
  work_ += pass->context->counters().read();
  work_ += pass->asked;
  if (keep) {
    for (JobRows& rows : pass->rows) rows.clear_head();
    const std::int64_t bytes = pass_bytes() - bytes_before;
    const double a_row = static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(1, key.rows()));
    bytes_a_row_ = bytes_a_row_ == 0 ? a_row : std::min(bytes_a_row_, a_row);  // the least seen: a lower estimate for the next one
    options_.kept->keep(std::move(key), std::move(pass), bytes);
  } else {
    cache_ = std::move(pass->cache);
  }
}

std::unique_ptr<ForwardPass::Pass> ForwardPass::kept_before(const WeightSet& weights, const Settings& settings, const std::vector<Job>& jobs) {
  const Job& job = jobs[0];
  std::unique_ptr<KeptPass> found =
      options_.kept->take(pass_key(job.adapter ? job.adapter_gradients : settings.gradients, weights, job.adapter, *job.data, job.part));
  return std::unique_ptr<Pass>(static_cast<Pass*>(found.release()));
}

void ForwardPass::add_router_loads(const Pass& pass, const Settings& settings) {
  Stream& stream = runtime_.backend.stream();
  for (std::size_t i = 0; settings.router_loads && i < pass.router_loads.size(); ++i) {
    const View& all = (*settings.router_loads)[i].view();
    std::vector<std::int32_t> sum = stream.read_ints(all).get();
    const std::vector<std::int32_t> own = stream.read_ints(pass.router_loads[i].view()).get();
    for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += own[e];
    stream.write(all, sum);
  }
}

std::int64_t ForwardPass::pass_bytes() const {
  const MemoryAccounts& memory = runtime_.backend.device().memory();
  return memory.current(MemoryCategory::activations) + memory.current(MemoryCategory::cache) + memory.current(MemoryCategory::workspace);
}

std::unique_ptr<ForwardPass::Pass> ForwardPass::forward(const WeightSet& weights, const Settings& settings, const std::vector<Job>& jobs, bool keep) {
  const TraceSpan span("training", "forward");
  Backend& backend = runtime_.backend;
  Device& device = backend.device();
  const Model& model = *runtime_.model;
  const bool taped = settings.gradient || keep;
  auto pass = std::make_unique<Pass>();
  std::vector<JobRows>& rows = pass->rows = std::vector<JobRows>(jobs.size());
  std::vector<DataPart> parts;
  for (const Job& job : jobs) parts.push_back({job.data, job.part});
  JointPlan plan = plan_together(parts, options_.page_size, options_.share_prefixes);
  for (std::size_t j = 0; j < jobs.size(); ++j) rows[j].plan = std::move(plan.plans[j]), rows[j].first_slice = plan.first_slice[j];
  const std::int64_t pages = (plan.pages * plan.page_size + options_.page_size - 1) / options_.page_size;
  pass->cache = keep ? nullptr : std::move(cache_);
  if (!pass->cache || pass->cache->pages < pages) {
    pass->cache.reset();  // freed before the next is allocated
    pass->cache = std::make_unique<KvCache>(backend, sharding_ ? sharding_->cache_shapes(model, runtime_.profile) : model.cache_shapes(runtime_.profile),
                                            runtime_.profile, keep ? pages : pages + pages / 4, options_.page_size);
  }
  pass->batch = std::make_unique<const Batch>(backend, plan.slices, plan.page_size, true);
  const Batch& batch = *pass->batch;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const std::size_t first = rows[j].first_slice, end = first + rows[j].plan.slices.size();
    rows[j].begin = batch.row_begin()[first];
    rows[j].end = batch.row_begin()[end];
    if (jobs[j].adapter)
      pass->adapters.push_back(
          {jobs[j].adapter, taped ? jobs[j].adapter_gradients : nullptr, batch.forward_begin()[first], batch.forward_begin()[end], rows[j].begin, rows[j].end});
  }

  ForwardOptions options;
  options.dense_attention = settings.index.dense_attention;
  options.index_loss = settings.index.index_loss && settings.gradient;
  options.index_loss_weight = static_cast<float>(settings.index_weight);
  options.checkpoint = options_.checkpoint_activations;
  pass->kept = kept_forward(weights, settings, jobs, *pass, taped);
  options.row_source = pass->kept.get();
  if (pass->kept) {
    options.row_values = pass->kept->row_values();
    pass->asked.expect_read(model, pass->kept->rows_read());
  } else {
    for (const SequenceSlice& slice : plan.slices)
      pass->asked.expect(model, std::max(slice.begin, slice.shared), slice.begin + static_cast<std::int64_t>(slice.tokens.size()),
                         settings.index.dense_attention);
  }
  if (settings.gradient) options.router_loads = settings.router_loads;
  if (keep && settings.router_loads) {
    for (const Buffer& loads : *settings.router_loads)
      pass->router_loads.push_back(device.allocate_zero(DType::i32, loads.view().rows, loads.view().cols, MemoryCategory::workspace));
    options.router_loads = &pass->router_loads;
  }
  if (!pass->adapters.empty()) options.adapters = &pass->adapters;
  if (taped) pass->tape.emplace(backend, settings.gradients);
  pass->context.emplace(runtime_.context(weights, *pass->cache, batch, options, taped ? &*pass->tape : nullptr, sharding_));
  pass->hidden = model.forward(*pass->context);
  pass->row_flags = taped_flags(*pass->context, pass->gathered_flags);
  return pass;
}

std::unique_ptr<KeptForward> ForwardPass::kept_forward(const WeightSet& weights, const Settings& settings, const std::vector<Job>& jobs, const Pass& pass,
                                                       bool taped) {
  const Batch& batch = *pass.batch;
  const bool other = settings.index.dense_attention || settings.index.index_loss || sharding_ || runtime_.observer || has_value_head(*runtime_.model);
  if (!options_.kept_forwards || &options_.kept_forwards->backend() != &runtime_.backend || other || batch.count() == 0) return nullptr;
  std::vector<KeptForward::Slice> slices;
  bool declared = false;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const JobRows& rows = pass.rows[j];
    const KeptForwards::Root root{weights.identity, jobs[j].adapter ? jobs[j].adapter->identity : 0};
    for (std::size_t k = 0; k < rows.plan.slices.size(); ++k) {
      const SequenceSlice& slice = rows.plan.slices[k];
      const std::size_t sequence = rows.plan.origins[k].sequence, at = rows.first_slice + k;
      const std::int64_t begin = std::max(slice.begin, slice.shared);
      declared = declared || slice.begin > 0;
      slices.push_back({root, j, sequence, &(*jobs[j].data)[sequence], begin, begin + batch.forward_begin()[at + 1] - batch.forward_begin()[at]});
    }
  }
  if (declared && batch.source()) return nullptr;
  auto kept = std::make_unique<KeptForward>(runtime_.backend, options_.kept_forwards, std::move(slices));
  // A backward that keeps its activations has to recompute segments that are read: nothing is gained where some of them are computed as well.
  const bool whole = taped && !options_.checkpoint_activations && kept->row_values() == RowValues::segments;
  const bool some = whole ? kept->complete() : kept->rows_read() > 0;
  if (!some || (!kept->complete() && !compute_missing(weights, jobs, *kept, options_.share_prefixes && !declared))) return nullptr;
  kept->begin(taped);
  return kept;
}

bool ForwardPass::compute_missing(const WeightSet& weights, const std::vector<Job>& jobs, KeptForward& kept, bool share) {
  Backend& backend = runtime_.backend;
  const Model& model = *runtime_.model;
  std::vector<DataPart> parts;
  for (std::size_t j = 0; j < jobs.size(); ++j) parts.push_back({jobs[j].data, kept.missing(j)});
  const JointPlan plan = plan_together(parts, options_.page_size, share);
  KvCache cache(backend, model.cache_shapes(runtime_.profile), runtime_.profile, plan.pages, plan.page_size);
  const Batch batch(backend, plan.slices, plan.page_size, true);
  const auto first_of = [&](std::size_t slice) { return std::max(plan.slices[slice].begin, plan.slices[slice].shared); };
  std::vector<AdapterRows> adapters;
  ForwardCounts asked;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const std::size_t first = plan.first_slice[j], end = first + plan.plans[j].slices.size();
    if (jobs[j].adapter && end > first)
      adapters.push_back(
          {jobs[j].adapter, nullptr, batch.forward_begin()[first], batch.forward_begin()[end], batch.row_begin()[first], batch.row_begin()[end]});
    for (std::size_t s = first; s < end; ++s) asked.expect(model, first_of(s), first_of(s) + batch.forward_begin()[s + 1] - batch.forward_begin()[s]);
  }
  ForwardOptions options;
  if (!adapters.empty()) options.adapters = &adapters;
  options.row_values = kept.row_values();
  options.row_sink = &kept.made();
  Context context = runtime_.context(weights, cache, batch, options);
  model.forward(context);
  work_ += context.counters().read();
  work_ += asked;
  const std::vector<std::int32_t> flags = backend.stream().read_ints(context.flags()).get();
  if (std::any_of(flags.begin(), flags.end(), [](std::int32_t flag) { return flag != 0; })) return false;
  kept.place_made([&](std::size_t job, std::size_t sequence, std::int64_t position) {
    const RowPlan& own = plan.plans[job];
    std::size_t k = 0;
    while (own.origins[k].sequence != sequence || own.origins[k].prefix) ++k;
    std::size_t slice = plan.first_slice[job] + k;
    while (position < first_of(slice)) slice = plan.slices[slice].owner;
    return batch.forward_begin()[slice] + position - first_of(slice);
  });
  return true;
}

void ForwardPass::finish(Pass& pass, const Settings& settings, const std::vector<Job>& jobs) {
  Backend& backend = runtime_.backend;
  Device& device = backend.device();
  const Model& model = *runtime_.model;
  const Batch& batch = *pass.batch;
  Context& ctx = *pass.context;
  std::vector<JobRows>& rows = pass.rows;
  const std::int64_t count = batch.tape_count();
  // Rows of logits per chunk, never all: about 4 MB, and enough rows to amortise reading the weight.
  const std::int64_t chunk = std::min(count, std::max<std::int64_t>(192, (std::int64_t{1} << 20) / model.facts().vocabulary));
  const Buffer logits = device.allocate(DType::f32, chunk, ctx.packed(model.facts().head).outputs, MemoryCategory::workspace);
  HeadLoss all;
  all.flags = pass.row_flags;
  all.x = taped(ctx, pass.hidden);
  all.w = ctx.packed(model.facts().head);
  all.round_input_bf16 = runtime_.profile.bf16_activations;
  all.logits_chunk = logits.view();
  // The index loss, which runs in the backward, needs none of the head's; what is recomputed there is begun by it.
  const bool through = settings.gradient && (!options_.indexer_alone || options_.checkpoint_activations);
  const Buffer dx = through ? device.allocate(DType::f32, count, pass.hidden.view().cols, MemoryCategory::activations) : Buffer();
  if (through) all.dx = dx.view();
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    if (has_value_head(model)) run_values(ctx, all, jobs[j], rows[j], pass.adapters, batch);
    else run_head(ctx, all, jobs[j], rows[j], pass.adapters, batch);
  }
  if (settings.gradient) {
    const TraceSpan span("training", "backward");
    Tape& tape = *pass.tape;
    if (through) tape.contribute(pass.hidden.node, dx);
    tape.backward();
    // Runs last, when the activations are freed. Trained weights have a single job.
    if (GradientSet* g = settings.gradients; through && g && all.w.outputs > 0 && !has_value_head(model)) {
      const Buffer table_dy = tape.take_table_gradient();
      const JobRows& own = rows.front();
      head_weight(backend, HeadWeight{g->gradient(model.facts().head), g->bins(model.facts().head), g->finish_at_once(), all.x, all.w,
                                      sharding_ ? sharding_->begin(model.facts().head) : 0, all.round_input_bf16, own.columns->target(), own.log_sum.view(),
                                      own.slope.view(), batch.tape_rows().segment, own.entropy.view(), own.entropy_slope.view(), table_dy.view(),
                                      batch.tape_rows().token, own.columns->distribution()});
    }
  }

  // Reads the results of this pass back to the host.
  const std::vector<std::int32_t> flags = backend.stream().read_ints(pass.row_flags).get();
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    try {
      keep(jobs[j], rows[j], batch, flags);
    } catch (const Error& e) {
      if (!jobs[j].failure) throw;
      *jobs[j].failure = e;
    }
  }
  for (const Buffer& buffer : ctx.index_losses())
    for (const float kl : backend.stream().read(buffer.view()).get())
      jobs[0].sums->index_losses.push_back(static_cast<double>(kl) / static_cast<double>(ctx.index_losses().size()));
}

// The head over one job's rows: `all` has the views of every row.
void ForwardPass::run_head(Context& context, const HeadLoss& all, const Job& job, JobRows& rows, const std::vector<AdapterRows>& adapters, const Batch& batch) {
  if (rows.count() == 0) return;
  Backend& backend = runtime_.backend;
  Device& device = backend.device();
  const bool trains = job.loss->kind != LossKind::none, marked = trains && job.loss->kind != LossKind::cross_entropy;
  LossColumns& columns = rows.columns.emplace(device, *job.data, rows.plan, *job.loss, job.normaliser, runtime_.model->facts().vocabulary);
  const std::int64_t width = columns.targets_per_row();
  const auto output = [&](std::int64_t cols) { return device.allocate(DType::f32, rows.count(), cols, MemoryCategory::activations); };
  HeadLoss head = all;
  for (View* view : {&head.flags, &head.x}) *view = view->row_range(rows.begin, rows.count());
  head.dx = View{};
  head.target = columns.target();
  head.distribution = columns.distribution();
  rows.logprob = output(width), rows.entropy = output(1);
  head.logprob = rows.logprob.view();
  const ParameterId id = runtime_.model->facts().head;
  const auto own = std::find_if(adapters.begin(), adapters.end(), [&](const AdapterRows& a) { return a.tape_begin == rows.begin && a.tape_end == rows.end; });
  const AdapterRows* adapter = job.adapter ? &*own : nullptr;
  const auto launch = [&] { head_loss(context, head, id, adapter, batch.tape_rows().segment.row_range(rows.begin, rows.count())); };
  // Sequence-level ratios need all log-probabilities of the sequence first.
  if (trains && columns.needs_logprobs()) {
    launch();
    columns.set_logprobs(backend.stream().read(rows.logprob.view()).get());
  }
  head.objective = columns.objective();
  head.entropy = rows.entropy.view();
  if (trains) {
    rows.loss = output(width);
    head.loss = rows.loss.view();
  }
  if (marked) {
    rows.marks = device.allocate(DType::i32, rows.count(), width, MemoryCategory::activations);
    head.marks = rows.marks.view();
  }
  if (columns.entropy_bonus()) {
    rows.entropy_slope = output(1);
    head.entropy_slope = rows.entropy_slope.view();
  }
  if (all.dx) {
    head.dx = all.dx.row_range(rows.begin, rows.count());
    rows.log_sum = output(1), rows.slope = output(width);
    head.log_sum = rows.log_sum.view();
    head.slope = rows.slope.view();
  }
  launch();
}

// The same of a value head.
void ForwardPass::run_values(Context& context, const HeadLoss& all, const Job& job, JobRows& rows, const std::vector<AdapterRows>& adapters,
                             const Batch& batch) {
  if (rows.count() == 0) return;
  Device& device = runtime_.backend.device();
  const Model& model = *runtime_.model;
  const LossKind kind = job.loss->kind;
  const LossColumns& columns = rows.columns.emplace(device, *job.data, rows.plan, *job.loss, job.normaliser, model.facts().vocabulary);
  if (columns.targets_per_row() != 1) fail(ErrorCode::unsupported, "targets_per_row is {}, allowed is 1: a row has one value", columns.targets_per_row());
  const auto output = [&] { return device.allocate(DType::f32, rows.count(), 1, MemoryCategory::activations); };
  rows.entropy = device.allocate_zero(DType::f32, rows.count(), 1, MemoryCategory::activations);
  rows.logprob = output();
  ValueLoss loss{.value = rows.logprob.view(), .flags = all.flags.row_range(rows.begin, rows.count()), .target = columns.target()};
  if (all.dx) {
    rows.slope = output();
    loss.slope = rows.slope.view();
  }
  if (kind != LossKind::none) {
    loss.kind = kind == LossKind::value ? ValueLoss::Kind::square : ValueLoss::Kind::linear;
    rows.loss = output();
    loss.loss = rows.loss.view();
    loss.weight = columns.objective().weight;
    loss.returned = columns.objective().advantage, loss.old = columns.objective().old_logprob;
    loss.clip = kind == LossKind::value ? value_clip(*job.loss) : 0.0f;
  }
  if (kind == LossKind::value) {
    rows.marks = device.allocate(DType::i32, rows.count(), 1, MemoryCategory::activations);
    loss.marks = rows.marks.view();
  }
  const auto own = std::find_if(adapters.begin(), adapters.end(), [&](const AdapterRows& a) { return a.tape_begin == rows.begin && a.tape_end == rows.end; });
  const auto part = [&](const View& v) { return v ? v.row_range(rows.begin, rows.count()) : View{}; };
  value_head(context, loss, model.facts().head, value_bias(model), part(all.x), part(all.dx), job.adapter ? &*own : nullptr, part(batch.tape_rows().segment));
}

// One job's results, from the device.
void ForwardPass::keep(const Job& job, const JobRows& rows, const Batch& batch, const std::vector<std::int32_t>& flags) {
  if (rows.count() == 0) return;
  Stream& stream = runtime_.backend.stream();
  const std::int64_t width = rows.columns->targets_per_row();
  const std::vector<float> logprobs = stream.read(rows.logprob.view()).get(), entropies = stream.read(rows.entropy.view()).get();
  const std::vector<float> losses = rows.loss ? stream.read(rows.loss.view()).get() : std::vector<float>();
  const bool has_gradient = rows.slope && job.loss->kind != LossKind::none;
  const std::vector<float> slopes = has_gradient ? stream.read(rows.slope.view()).get() : std::vector<float>();
  const std::vector<float> entropy_slopes = has_gradient && rows.entropy_slope ? stream.read(rows.entropy_slope.view()).get() : std::vector<float>();
  const std::vector<std::int32_t> marks = rows.marks ? stream.read_ints(rows.marks.view()).get() : std::vector<std::int32_t>();
  for (std::size_t k = 0; k < rows.plan.slices.size(); ++k) {
    const RowPlan::Origin& origin = rows.plan.origins[k];
    const std::int64_t first = rows.plan.slices[k].begin, begin = batch.row_begin()[rows.first_slice + k], end = batch.row_begin()[rows.first_slice + k + 1];
    for (std::int64_t r = begin; r < end; ++r)
      if (flags[static_cast<std::size_t>(r)])
        fail(ErrorCode::numeric, "sequence {}, token {}: a value is not a number or not finite (flags {})", origin.sequence, first + r - begin,
             flags[static_cast<std::size_t>(r)]);
    if (origin.prefix) continue;
    const TrainSequence& d = (*job.data)[origin.sequence];
    job.result->scored += std::count_if(d.targets.begin(), d.targets.end(), [](std::int32_t token) { return token >= 0; });
    // `own` values per row, of the `columns` that a row has here.
    const auto put = [&](auto& to, const auto& from, std::int64_t own, std::int64_t columns) {
      to.assign(static_cast<std::size_t>(first * own), {});  // a declared prefix is not scored
      for (std::int64_t r = begin - rows.begin; r < end - rows.begin; ++r) to.insert(to.end(), from.begin() + r * columns, from.begin() + r * columns + own);
    };
    put(job.result->logprobs[origin.sequence], logprobs, d.targets_per_row, width);
    put(job.result->entropies[origin.sequence], entropies, 1, 1);
    if (rows.loss) put(job.result->losses[origin.sequence], losses, d.targets_per_row, width);
    if (rows.marks) put(job.result->marks[origin.sequence], marks, d.targets_per_row, width);
    job.result->rows += first + end - begin;
    if (!has_gradient) continue;
    std::int64_t moving = 0;
    for (std::int64_t r = begin - rows.begin; r < end - rows.begin; ++r) {
      const auto slope = slopes.begin() + r * width;
      moving +=
          std::any_of(slope, slope + width, [](float s) { return s != 0; }) || (!entropy_slopes.empty() && entropy_slopes[static_cast<std::size_t>(r)] != 0);
    }
    job.result->gradient_tokens += moving;
    job.result->gradient_sequences += moving > 0;
  }
}

}  // namespace lockstep
