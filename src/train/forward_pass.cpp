#include "train/forward_pass.h"

#include <algorithm>

#include "kernels/launch.h"
#include "model/sharding.h"
#include "model/value_head.h"
#include "observe/trace.h"
#include "train/forward_pass_parts.h"

namespace lockstep {

namespace {
// What passes hold now.
std::int64_t pass_bytes(const MemoryAccounts& memory) {
  return memory.current(MemoryCategory::activations) + memory.current(MemoryCategory::cache) + memory.current(MemoryCategory::workspace);
}
}  // namespace

ForwardPass::ForwardPass(Runtime& runtime, const TrainerOptions& options, const Sharding* sharding, Communicator* context)
    : runtime_(runtime), options_(options), sharding_(sharding), context_(context) {
  const BackendKind kind = runtime_.backend.device().kind();
  if (context_ && context_->size() > 1 && (kind == BackendKind::cuda || kind == BackendKind::emulated))
    fail(ErrorCode::unsupported, "ranks has cp={}, and CUDA's kernels have no sequences in pieces; allowed is cp=1", context_->size());
}

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
  const std::int64_t bytes_before = pass_bytes(runtime_.backend.device().memory());
  std::unique_ptr<Pass> pass = prepare(weights, settings, jobs, keep);
  forward(*pass);
  finish(*pass, settings, jobs);
  work_ += pass->context->counters().read();
  work_ += pass->asked;
  if (keep) {
    for (JobRows& rows : pass->rows) rows.clear_head();
    const std::int64_t bytes = pass_bytes(runtime_.backend.device().memory()) - bytes_before;
    const double a_row = static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(1, key.rows()));
    bytes_a_row_ = bytes_a_row_ == 0 ? a_row : std::min(bytes_a_row_, a_row);  // the least seen: a lower estimate for the next one
    options_.kept->keep(std::move(key), std::move(pass), bytes);
  } else {
    give_back(*pass);
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

std::unique_ptr<ForwardPass::Pass> ForwardPass::prepare(const WeightSet& weights, const Settings& settings, const std::vector<Job>& jobs, bool keep) {
  Backend& backend = runtime_.backend;
  Device& device = backend.device();
  const Model& model = *runtime_.model;
  const bool taped = settings.gradient || keep;
  auto pass = std::make_unique<Pass>();
  std::vector<JobRows>& rows = pass->rows = std::vector<JobRows>(jobs.size());
  JointPlan plan = plan_of(jobs);
  for (std::size_t j = 0; j < jobs.size(); ++j) rows[j].plan = std::move(plan.plans[j]), rows[j].first_slice = plan.first_slice[j];
  const std::int64_t pages = (plan.pages * plan.page_size + options_.page_size - 1) / options_.page_size;
  const std::vector<CacheShape> shapes = sharding_ ? sharding_->cache_shapes(model, runtime_.profile) : model.cache_shapes(runtime_.profile);
  if (!jobs.empty() && jobs[0].cut) {
    const SequenceSlice& piece = plan.slices.front();
    pass->pieces.emplace(*context_, backend, std::ssize((*jobs[0].data)[jobs[0].part.front()].tokens), piece.pages, plan.page_size);
    pass->cache = std::make_unique<KvCache>(one_layer_cache(backend, shapes, runtime_.profile, pages, options_.page_size));
  } else {
    pass->cache = keep ? nullptr : std::move(cache_);
  }
  if (!pass->cache || pass->cache->pages < pages) {
    pass->cache.reset();  // freed before the next is allocated
    pass->cache = std::make_unique<KvCache>(backend, shapes, runtime_.profile, keep ? pages : pages + pages / 4, options_.page_size);
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
  if (!taped || options.checkpoint) options.row_tile = options_.row_tile;
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
  if (pass->pieces) options.pieces = &*pass->pieces;
  if (!jobs.empty()) pass->dealt = jobs[0].dealt;
  options.dealt_rows = pass->dealt.get();
  if (sharding_ && !sharding_->first_stage()) options.stage = &pass->stage;
  options.segment_weights = settings.gathered;
  if (settings.leaving) options.segment_weights = settings.leaving;
  if (taped) pass->tape.emplace(backend, settings.gradients);
  pass->context.emplace(runtime_.context(weights, *pass->cache, batch, options, taped ? &*pass->tape : nullptr, sharding_));
  return pass;
}

JointPlan ForwardPass::plan_of(const std::vector<Job>& jobs) const {
  if (!jobs.empty() && jobs[0].cut) {
    JointPlan plan;
    plan.plans.push_back(plan_pieces(*jobs[0].data, jobs[0].part.front(), options_.page_size, context_->size(), context_->rank()));
    plan.first_slice = {0};
    plan.slices = plan.plans[0].slices;
    plan.page_size = plan.plans[0].page_size, plan.pages = plan.plans[0].pages;
    return plan;
  }
  std::vector<DataPart> parts;
  for (const Job& job : jobs) parts.push_back({job.data, job.part});
  return plan_together(parts, options_.page_size, options_.share_prefixes);
}

// For the next pass: that of pieces has one layer at a time.
void ForwardPass::give_back(Pass& pass) {
  if (!pass.pieces) cache_ = std::move(pass.cache);
}

void ForwardPass::forward(Pass& pass) {
  const TraceSpan span("training", "forward");
  pass.hidden = runtime_.model->forward(*pass.context);
  pass.row_flags = taped_flags(*pass.context, pass.gathered_flags);
}

std::unique_ptr<KeptForward> ForwardPass::kept_forward(const WeightSet& weights, const Settings& settings, const std::vector<Job>& jobs, const Pass& pass,
                                                       bool taped) {
  const Batch& batch = *pass.batch;
  const bool other = settings.index.dense_attention || settings.index.index_loss || pass.pieces || has_value_head(*runtime_.model);
  const bool elsewhere = options_.kept_forwards && options_.ranks.size() == 1 && &options_.kept_forwards->backend() != &runtime_.backend;
  if (!options_.kept_forwards || elsewhere || other || batch.count() == 0) return nullptr;
  std::vector<KeptForward::Slice> slices;
  bool declared = false;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const JobRows& rows = pass.rows[j];
    const KeptForwards::Root root = runtime_.observer ? KeptForwards::Root() : jobs[j].kept;  // what is observed is computed
    for (std::size_t k = 0; k < rows.plan.slices.size(); ++k) {
      const SequenceSlice& slice = rows.plan.slices[k];
      const std::size_t sequence = rows.plan.origins[k].sequence, at = rows.first_slice + k;
      const std::int64_t begin = std::max(slice.begin, slice.shared);
      declared = declared || slice.begin > 0;
      slices.push_back({root, j, sequence, &(*jobs[j].data)[sequence], begin, begin + batch.forward_begin()[at + 1] - batch.forward_begin()[at]});
    }
  }
  if (declared && batch.source()) return nullptr;
  auto kept = std::make_unique<KeptForward>(runtime_.backend, options_.kept_forwards, std::move(slices), sharding_ ? sharding_->place().model : nullptr);
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
  const std::vector<CacheShape> shapes = sharding_ ? sharding_->cache_shapes(model, runtime_.profile) : model.cache_shapes(runtime_.profile);
  KvCache cache(backend, shapes, runtime_.profile, plan.pages, plan.page_size);
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
  Context context = runtime_.context(weights, cache, batch, options, nullptr, sharding_);
  model.forward(context);
  work_ += context.counters().read();
  work_ += asked;
  const std::vector<std::int32_t> flags = backend.stream().read_ints(context.flags()).get();
  if (!kept.everywhere(std::all_of(flags.begin(), flags.end(), [](std::int32_t flag) { return flag == 0; }))) return false;
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
  GatheredWeights* const gathered = settings.gathered;
  if (gathered) gathered->use_head();
  const Buffer dx = run_heads(pass, settings, jobs);
  if (settings.gradient) {
    if (gathered) gathered->use_last();
    backward(pass, dx);
    with_head(gathered, [&] { deposit_head(pass, settings); });
  }
  read_results(pass, jobs);
}

void ForwardPass::backward(Pass& pass, const Buffer& dx) {
  const TraceSpan span("training", "backward");
  Tape& tape = *pass.tape;
  if (dx) tape.contribute(pass.hidden.node, dx);
  tape.backward();
  pass.table_gradient = tape.take_table_gradient();
}

}  // namespace lockstep
