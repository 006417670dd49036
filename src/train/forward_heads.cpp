// Heads, losses and results of a pass: the part of train/forward_pass.h behind the hidden states.
#include <algorithm>

#include "base/error.h"
#include "model/operations/head.h"
#include "model/operations/value_head.h"
#include "model/value_head.h"
#include "train/forward_pass_parts.h"
#include "train/rank_record.h"
#include "train/value_loss.h"

namespace lockstep {

namespace {
// Layers of the whole model that have one.
std::int64_t indexers(const Runtime& runtime) {
  const std::vector<CacheShape> shapes = runtime.model->cache_shapes(runtime.profile);
  return std::count_if(shapes.begin(), shapes.end(), [](const CacheShape& shape) { return shape.index_key > 0; });
}
}  // namespace

// The index loss, which runs in the backward, needs none of the head's gradient; what is recomputed there is begun by it.
bool ForwardPass::through_head(const Settings& settings) const { return settings.gradient && (!options_.indexer_alone || options_.checkpoint_activations); }

Buffer ForwardPass::run_heads(Pass& pass, const Settings& settings, const std::vector<Job>& jobs) {
  Device& device = runtime_.backend.device();
  const Model& model = *runtime_.model;
  const Batch& batch = *pass.batch;
  Context& ctx = *pass.context;
  const std::int64_t count = batch.tape_count();
  // Rows of logits per chunk, never all: about 4 MB, and enough rows to amortise reading the weight.
  const std::int64_t chunk = std::min(count, std::max<std::int64_t>(192, (std::int64_t{1} << 20) / model.facts().vocabulary));
  const Buffer logits = device.allocate(DType::f32, chunk, ctx.packed(model.facts().head).outputs, MemoryCategory::workspace);
  HeadLoss& all = pass.head;
  all.flags = pass.row_flags;
  all.x = taped(ctx, pass.hidden);
  all.w = ctx.packed(model.facts().head);
  all.round_input_bf16 = runtime_.profile.bf16_activations;
  all.logits_chunk = logits.view();
  Buffer dx;
  if (through_head(settings)) {
    dx = device.allocate(DType::f32, count, pass.hidden.view().cols, MemoryCategory::activations);
    all.dx = dx.view();
  }
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    if (has_value_head(model)) run_values(ctx, all, jobs[j], pass.rows[j], pass.adapters, batch);
    else run_head(ctx, all, jobs[j], pass.rows[j], pass.adapters, batch);
  }
  return dx;
}

// Runs last, when the activations are freed. Trained weights have a single job.
void ForwardPass::deposit_head(Pass& pass, const Settings& settings) {
  const ParameterId id = runtime_.model->facts().head;
  GradientSet* g = settings.gradients;
  HeadLoss& all = pass.head;
  if (settings.gathered) all.w = pass.context->packed(id);  // gathered anew
  if (!through_head(settings) || !g || all.w.outputs == 0 || has_value_head(*runtime_.model)) return;
  const JobRows& own = pass.rows.front();
  if (own.count() == 0) return;
  const Rows& rows = pass.batch->tape_rows();
  head_weight(runtime_.backend,
              HeadWeight{g->gradient(id), g->bins(id), g->finish_at_once(), all.x, all.w, sharding_ ? sharding_->begin(id) : 0, all.round_input_bf16,
                         own.columns->target(), own.log_sum.view(), own.slope.view(), rows.segment, own.entropy.view(), own.entropy_slope.view(),
                         pass.table_gradient.view(), rows.token, own.columns->distribution(), own.columns->teacher()});
}

// Reads the results of this pass back to the host: of a stage of a pipeline that is not the last one whether its rows are finite, and the index losses.
void ForwardPass::read_results(Pass& pass, const std::vector<Job>& jobs) {
  Stream& stream = runtime_.backend.stream();
  Context& ctx = *pass.context;
  const std::vector<std::int32_t> flags = stream.read_ints(pass.row_flags).get();
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    try {
      check_finite(pass.rows[j], *pass.batch, flags);
      if (!sharding_ || sharding_->last_stage()) keep(jobs[j], pass.rows[j], *pass.batch);
    } catch (const Error& e) {
      if (!jobs[j].failure) throw;
      if (!*jobs[j].failure) *jobs[j].failure = e;
    }
  }
  const double layers = sharding_ ? static_cast<double>(indexers(runtime_)) : static_cast<double>(ctx.losses().size());
  for (const Buffer& buffer : ctx.losses())
    for (const float kl : stream.read(buffer.view()).get()) jobs[0].sums->index_losses.push_back(static_cast<double>(kl) / layers);
}

void ForwardPass::check_finite(const JobRows& rows, const Batch& batch, const std::vector<std::int32_t>& flags) {
  for (std::size_t k = 0; k < rows.plan.slices.size() && rows.count() > 0; ++k) {
    const RowPlan::Origin& origin = rows.plan.origins[k];
    const std::int64_t first = rows.plan.slices[k].begin, begin = batch.row_begin()[rows.first_slice + k], end = batch.row_begin()[rows.first_slice + k + 1];
    for (std::int64_t r = begin; r < end; ++r)
      if (const std::int32_t flag = flags[static_cast<std::size_t>(r)])
        fail(ErrorCode::numeric, "sequence {}, token {}: a value is not a number or not finite (flags {})", origin.sequence, first + r - begin, flag);
  }
}

// Of all positions of a sequence whose pieces several ranks have, in order.
std::vector<float> ForwardPass::whole_logprobs(Context& context, const View& logprobs) {
  const ContextPieces& pieces = *context.options().pieces;
  const Buffer all = context.allocate(DType::f32, pieces.length(), logprobs.cols);
  pieces.gather(runtime_.backend.stream(), logprobs, all.view());
  const std::vector<float> by_rank = runtime_.backend.stream().read(all.view()).get();
  std::vector<float> whole(by_rank.size());
  for (std::size_t row = 0; row < pieces.positions().size(); ++row)
    std::copy_n(by_rank.begin() + static_cast<std::ptrdiff_t>(row) * logprobs.cols, logprobs.cols,
                whole.begin() + std::ptrdiff_t{pieces.positions()[row]} * logprobs.cols);
  return whole;
}

// The head over one job's rows: `all` has the views of every row.
void ForwardPass::run_head(Context& context, const HeadLoss& all, const Job& job, JobRows& rows, const std::vector<AdapterRows>& adapters, const Batch& batch) {
  if (rows.count() == 0) return;
  Backend& backend = runtime_.backend;
  Device& device = backend.device();
  const bool trains = job.loss->kind != LossKind::none, marked = has_marks(job.loss->kind);
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
    if (context.options().pieces) columns.set_whole_logprobs(whole_logprobs(context, rows.logprob.view()));
    else columns.set_logprobs(backend.stream().read(rows.logprob.view()).get());
  }
  head.objective = columns.objective();
  head.entropy = rows.entropy.view();
  Buffer teacher_logits;
  if (head.teacher = columns.teacher(); head.teacher) {
    teacher_logits = device.allocate(DType::f32, all.logits_chunk.rows, all.logits_chunk.cols, MemoryCategory::workspace);
    head.teacher.logits_chunk = teacher_logits.view();
  }
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
void ForwardPass::keep(const Job& job, const JobRows& rows, const Batch& batch) {
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
    if (origin.prefix) continue;
    const TrainSequence& d = (*job.data)[origin.sequence];
    const bool piece = rows.plan.slices[k].piece;
    const auto targets = [&](std::int64_t row) { return d.targets.begin() + row * d.targets_per_row; };
    const std::int64_t scored_from = piece ? first : 0, scored_to = piece ? first + end - begin : std::ssize(d.tokens);
    job.result->scored += std::count_if(targets(scored_from), targets(scored_to), [](std::int32_t token) { return token >= 0; });
    // `own` values per row, of the `columns` that a row has here.
    const auto put = [&](auto& to, const auto& from, std::int64_t own, std::int64_t columns) {
      to.resize(static_cast<std::size_t>(first * own));  // a declared prefix is not scored; of pieces the others come from other ranks
      for (std::int64_t r = begin - rows.begin; r < end - rows.begin; ++r) to.insert(to.end(), from.begin() + r * columns, from.begin() + r * columns + own);
    };
    put(job.result->logprobs[origin.sequence], logprobs, d.targets_per_row, width);
    put(job.result->entropies[origin.sequence], entropies, 1, 1);
    if (rows.loss) put(job.result->losses[origin.sequence], losses, d.targets_per_row, width);
    if (rows.marks) put(job.result->marks[origin.sequence], marks, d.targets_per_row, width);
    job.result->rows += (piece ? 0 : first) + end - begin;
    if (!has_gradient) continue;
    std::int64_t moving = 0;
    for (std::int64_t r = begin - rows.begin; r < end - rows.begin; ++r) {
      const auto slope = slopes.begin() + r * width;
      moving +=
          std::any_of(slope, slope + width, [](float s) { return s != 0; }) || (!entropy_slopes.empty() && entropy_slopes[static_cast<std::size_t>(r)] != 0);
    }
    job.result->gradient_tokens += moving;
    if (piece && moving > 0) job.sums->moved.push_back(origin.sequence);
    else job.result->gradient_sequences += moving > 0;
  }
}

}  // namespace lockstep
