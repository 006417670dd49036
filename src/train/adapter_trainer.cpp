#include "train/adapter_trainer.h"

#include <numeric>
#include <set>

#include "base/error.h"
#include "model/kept_forwards.h"
#include "observe/trace.h"
#include "train/gradient_file.h"
#include "train/gradient_norm.h"
#include "train/kept_passes.h"
#include "train/loss_columns.h"
#include "train/loss_metrics.h"
#include "train/rank_record.h"

namespace lockstep {

namespace {
std::vector<std::vector<std::size_t>> parts_of(const std::vector<TrainSequence>& data, const TrainerOptions& options) {
  std::vector<std::size_t> all(data.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return micro_batches(data, all, static_cast<std::size_t>(options.micro_batch));
}

struct Scored {
  const AdapterWeights* adapter = nullptr;
  const std::vector<TrainSequence>* data = nullptr;
  GradientSet* gradients = nullptr;  // where a backward may follow: only with a single job
};

// A job's own error goes to its entry of `failures`, or is thrown when that is null.
void fail_job(AdapterTrainer::Failures* failures, std::size_t job, const Error& error) {
  if (!failures) throw error;
  (*failures)[job] = error;
}

std::vector<std::vector<std::vector<float>>> score_with(FrozenBase& base, const std::vector<Scored>& jobs, AdapterTrainer::Failures* failures) {
  LossOptions none;
  none.kind = LossKind::none;
  if (failures) failures->assign(jobs.size(), std::nullopt);
  std::vector<ForwardBackwardResult> results(jobs.size());
  std::vector<RowSums> sums(jobs.size());
  std::vector<std::vector<std::vector<std::size_t>>> parts(jobs.size());
  std::size_t passes = 0;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    try {
      check_data(base.runtime(), *jobs[j].data, none, false, base.options().declared_prefixes);
    } catch (const Error& e) {
      fail_job(failures, j, e);
      continue;
    }
    results[j].make_room(jobs[j].data->size(), none.kind);
    parts[j] = parts_of(*jobs[j].data, base.options());
    passes = std::max(passes, parts[j].size());
  }
  for (std::size_t pass = 0; pass < passes; ++pass) {
    std::vector<ForwardPass::Job> now;
    for (std::size_t j = 0; j < jobs.size(); ++j)
      if (pass < parts[j].size() && !(failures && (*failures)[j]))
        now.push_back(
            {jobs[j].data, &none, 1.0, parts[j][pass], &results[j], &sums[j], jobs[j].adapter, jobs[j].gradients, failures ? &(*failures)[j] : nullptr});
    if (!now.empty()) base.pass().run(*base.weights(), {.keep = jobs[0].gradients != nullptr}, now);
  }
  std::vector<std::vector<std::vector<float>>> out;
  for (ForwardBackwardResult& result : results) out.push_back(std::move(result.logprobs));
  return out;
}

// Every matrix of an adapter is trained and decays; for group norms it counts as what it adapts.
std::vector<TrainedParameter> adapted_parameters(const Manifest& model, const AdapterLayout& layout) {
  std::vector<TrainedParameter> all(layout.manifest().parameters().size());
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const AdapterLayout::Place& place = layout.place(static_cast<ParameterId>(i));
    for (const ParameterId id : {place.a, place.b})
      if (id >= 0) all[static_cast<std::size_t>(id)].group = gradient_group(model.parameters()[i]);
  }
  return all;
}

// Forward only, with a loss.
void evaluate_with(FrozenBase& base, const AdapterWeights* adapter, OpenBatch& batch, const std::vector<std::size_t>& places,
                   const std::vector<TrainSequence>& piece) {
  batch.check(places, piece);
  check_data(base.runtime(), piece, batch.loss(), false, base.options().declared_prefixes);
  ForwardBackwardResult result;
  result.make_room(piece.size(), batch.loss().kind);
  RowSums sums;
  for (const std::vector<std::size_t>& part : parts_of(piece, base.options()))
    base.pass().run(*base.weights(), {}, {{&piece, &batch.loss(), batch.loss().normaliser, part, &result, &sums, adapter, nullptr}});
  batch.put(places, piece, std::move(result), {});
}
}  // namespace

FrozenBase::FrozenBase(Runtime& runtime, std::shared_ptr<const WeightSet> weights, const TrainerOptions& options)
    : runtime_(runtime), weights_(std::move(weights)), options_(options), pass_(runtime, options) {
  if (options.ranks.size() > 1)
    fail(ErrorCode::unsupported, "adapters over {} ranks: ranks do not share weights that have adapters; allowed is one rank", options.ranks.size());
  if (options.train_indexer) fail(ErrorCode::unsupported, "train_indexer with adapters: the weights are frozen, the indexer's too; allowed is false");
}

std::vector<std::vector<float>> FrozenBase::score(const std::vector<TrainSequence>& data) {
  return std::move(score_with(*this, {{nullptr, &data}}, nullptr)[0]);
}

void FrozenBase::evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) {
  evaluate_with(*this, nullptr, batch, places, piece);
}

AdapterTrainer::AdapterTrainer(std::shared_ptr<FrozenBase> base, std::shared_ptr<const AdapterLayout> layout, const WeightImages& masters,
                               const OptimizerFamily& optimizer)
    : base_(std::move(base)),
      layout_(std::move(layout)),
      rows_(backend(), layout_->manifest()),
      gradients_(backend(), rows_, {.accumulate = base_->options().accumulate, .always_bins = true, .kept = base_->options().kept}),
      state_(backend(), rows_, nullptr, adapted_parameters(base_->runtime().model->manifest(), *layout_), masters, optimizer, base_->options()) {
  publish();
}

void AdapterTrainer::publish() {
  if (weights_ && base_->options().kept_forwards) base_->options().kept_forwards->forget(weights_->identity);
  auto next = std::make_shared<AdapterWeights>();
  next->layout = layout_;
  next->version = static_cast<std::uint64_t>(state_.steps());
  next->parameters = state_.weights();
  weights_ = std::move(next);
}

void AdapterTrainer::begin(const std::vector<TrainSequence>& data, const LossOptions& loss) {
  state_.check_usable();
  check_data(base_->runtime(), data, loss, false, base_->options().declared_prefixes);
  gradients_.check_may_open();
}

ForwardBackwardResult AdapterTrainer::forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss) {
  return std::move(forward_backward_together({{this, &data, loss}})[0]);
}

std::vector<ForwardBackwardResult> AdapterTrainer::forward_backward_together(const std::vector<Job>& jobs, Failures* failures) {
  const TraceSpan span("training", "forward and backward");
  if (failures) failures->assign(jobs.size(), std::nullopt);
  const auto failed = [&](std::size_t j) { return failures && (*failures)[j]; };
  std::set<const AdapterTrainer*> seen;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const Job& job = jobs[j];
    if (!seen.insert(job.trainer).second) fail(ErrorCode::invalid_argument, "an adapter comes twice in one call; allowed is once, with all its data");
    if (job.trainer->base_ != jobs[0].trainer->base_) fail(ErrorCode::invalid_argument, "adapters of several bases in one call; allowed is one base");
  }
  std::vector<ForwardBackwardResult> results(jobs.size());
  if (jobs.empty()) return results;
  FrozenBase& base = *jobs[0].trainer->base_;
  std::vector<RowSums> sums(jobs.size());
  std::vector<ForwardPass::Job> all(jobs.size());
  std::vector<std::vector<std::vector<std::size_t>>> parts(jobs.size());
  std::vector<double> normalisers(jobs.size());
  std::size_t passes = 0;
  // All jobs are checked before anything changes.
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    try {
      jobs[j].trainer->begin(*jobs[j].data, jobs[j].loss);
      normalisers[j] = loss_normaliser(*jobs[j].data, jobs[j].loss);
      if (normalisers[j] != 0) parts[j] = parts_of(*jobs[j].data, base.options());  // 0: all masked, no gradient
    } catch (const Error& e) {
      fail_job(failures, j, e);
    }
    passes = std::max(passes, parts[j].size());
  }
  try {
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (failed(j)) continue;
      const Job& job = jobs[j];
      AdapterTrainer& trainer = *job.trainer;
      results[j].make_room(job.data->size(), job.loss.kind);
      trainer.gradients_.open({});
      all[j] = {job.data,
                &job.loss,
                normalisers[j],
                {},
                &results[j],
                &sums[j],
                trainer.weights_.get(),
                trainer.gradients_.set(),
                failures ? &(*failures)[j] : nullptr};
    }
    for (std::size_t pass = 0; pass < passes; ++pass) {
      std::vector<ForwardPass::Job> now;
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        if (pass >= parts[j].size() || failed(j)) continue;
        now.push_back(all[j]);
        now.back().part = parts[j][pass];
      }
      if (now.empty()) continue;
      ForwardPass::Settings settings;
      settings.gradient = true;
      base.pass().run(*base.weights(), settings, now);
    }
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (failed(j)) {
        if (all[j].data) jobs[j].trainer->abandon_gradients();
        results[j] = {};
        continue;
      }
      total_losses(sums[j], 0.0, results[j]);
      LossMetricSums metrics(jobs[j].loss);
      if (results[j].rows > 0) metrics.add(*jobs[j].data, results[j]);  // none: everything is masked, and nothing was computed
      results[j].metrics = metrics.metrics(results[j]);
      jobs[j].trainer->gradients_.close();
    }
  } catch (...) {
    for (const Job& job : jobs) job.trainer->abandon_gradients();
    throw;
  }
  return results;
}

std::vector<std::vector<float>> AdapterTrainer::score(const std::vector<TrainSequence>& data) { return std::move(score_together(*base_, {{this, &data}})[0]); }

std::vector<std::vector<std::vector<float>>> AdapterTrainer::score_together(FrozenBase& base, const std::vector<ScoreJob>& jobs, Failures* failures) {
  std::vector<Scored> scored;
  for (const ScoreJob& job : jobs) {
    if (job.trainer && job.trainer->base_.get() != &base) fail(ErrorCode::invalid_argument, "adapters of several bases in one call; allowed is one base");
    scored.push_back({job.trainer ? job.trainer->weights_.get() : nullptr, job.data});
  }
  if (AdapterTrainer* one = jobs.size() == 1 ? jobs[0].trainer : nullptr) scored[0].gradients = one->gradients_.for_kept(true);
  return score_with(base, scored, failures);
}

void AdapterTrainer::evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) {
  evaluate_with(*base_, weights_.get(), batch, places, piece);
}

OptimResult AdapterTrainer::optim_step(const AdamParameters& adam) {
  const TraceSpan span("training", "optimizer step");
  state_.check_usable();
  try {
    const OptimResult result = state_.step(gradients_.take(), adam, [&] { publish(); });
    gradients_.drop();
    return result;
  } catch (...) {
    gradients_.abandon();
    throw;
  }
}

void AdapterTrainer::save_gradients(const std::filesystem::path& folder) {
  state_.check_usable();
  AtomicFolder files(folder, AtomicFolder::Existing::replace);
  CheckedWriter file(gradient_file(files.partial(), 0));
  gradients_.write(file);
  file.commit();
  files.commit();
}

void AdapterTrainer::load_gradients(const std::filesystem::path& folder) {
  state_.check_usable();
  try {
    CheckedReader file(gradient_file(folder, 0));
    gradients_.read(file, nullptr);
    file.finish();
  } catch (...) {
    gradients_.abandon();
    throw;
  }
}

WeightImages AdapterTrainer::gradient_images() {
  GradientSet& gradients = gradients_.finished();
  WeightImages images;
  for (std::size_t i = 0; i < layout_->manifest().parameters().size(); ++i) images.push_back(rows_.image(i, gradients.gradient(static_cast<ParameterId>(i))));
  return images;
}

void AdapterTrainer::restore(const TrainerState& state) {
  gradients_.abandon();
  state_.restore(state, [&] { publish(); });
}

std::uint64_t AdapterTrainer::gradient_hash() { return images_hash(layout_->manifest(), gradient_images()); }

}  // namespace lockstep
