#include "train/adapter_trainer.h"

#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "train/adam.h"
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

std::vector<std::vector<float>> score_with(FrozenBase& base, const AdapterWeights* adapter, GradientSet* gradients, const std::vector<TrainSequence>& data) {
  LossOptions none;
  none.kind = LossKind::none;
  check_data(base.runtime(), data, none, false, base.options().declared_prefixes);
  ForwardBackwardResult result;
  result.make_room(data.size(), none.kind);
  RowSums sums;
  for (const std::vector<std::size_t>& part : parts_of(data, base.options()))
    base.pass().run(*base.weights(), {.keep = gradients != nullptr}, {{&data, &none, 1.0, part, &result, &sums, adapter, gradients}});
  return std::move(result.logprobs);
}
}  // namespace

FrozenBase::FrozenBase(Runtime& runtime, std::shared_ptr<const WeightSet> weights, const TrainerOptions& options)
    : runtime_(runtime), weights_(std::move(weights)), options_(options), pass_(runtime, options) {
  if (options.ranks.size() > 1)
    fail(ErrorCode::unsupported, "adapters over {} ranks: ranks do not share weights that have adapters; allowed is one rank", options.ranks.size());
  if (!options.optimizer_folder.empty()) fail(ErrorCode::unsupported, "optimizer_folder is '{}': an adapter's optimizer is in memory; allowed is none", options.optimizer_folder);
  if (options.train_indexer) fail(ErrorCode::unsupported, "train_indexer with adapters: the weights are frozen, the indexer's too; allowed is false");
}

std::vector<std::vector<float>> FrozenBase::score(const std::vector<TrainSequence>& data) { return score_with(*this, nullptr, nullptr, data); }

AdapterTrainer::AdapterTrainer(std::shared_ptr<FrozenBase> base, std::shared_ptr<const AdapterLayout> layout, const WeightImages& masters)
    : base_(std::move(base)), layout_(std::move(layout)), weights_(make_adapter(backend(), layout_, masters, 0)),
      gradients_(backend(), layout_->manifest(), true) {
  for (const Parameter& p : layout_->manifest().parameters())
    for (std::vector<Buffer>* moments : {&first_moments_, &second_moments_}) {
      moments->push_back(allocate_parameter(backend(), p, DType::f32, MemoryCategory::optimizer));
      backend().stream().fill_zero(moments->back().view());
    }
}

AdapterTrainer::~AdapterTrainer() { drop_kept(); }

void AdapterTrainer::drop_kept() {
  if (base_->options().kept) base_->options().kept->drop(&gradients_);
}

void AdapterTrainer::begin(const std::vector<TrainSequence>& data, const LossOptions& loss) {
  check_data(base_->runtime(), data, loss, false, base_->options().declared_prefixes);
  if (pending_calls_ > 0 && !base_->options().accumulate)
    fail(ErrorCode::internal, "a second forward_backward before optim_step needs TrainerOptions::accumulate");
}

ForwardBackwardResult AdapterTrainer::forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss) {
  return std::move(forward_backward_together({{this, &data, loss}})[0]);
}

std::vector<ForwardBackwardResult> AdapterTrainer::forward_backward_together(const std::vector<Job>& jobs) {
  std::set<const AdapterTrainer*> seen;
  for (const Job& job : jobs) {
    if (!seen.insert(job.trainer).second) fail(ErrorCode::invalid_argument, "an adapter comes twice in one call; allowed is once, with all its data");
    if (job.trainer->base_ != jobs[0].trainer->base_) fail(ErrorCode::invalid_argument, "adapters of several bases in one call; allowed is one base");
    job.trainer->begin(*job.data, job.loss);
  }
  std::vector<ForwardBackwardResult> results(jobs.size());
  if (jobs.empty()) return results;
  FrozenBase& base = *jobs[0].trainer->base_;
  std::vector<RowSums> sums(jobs.size());
  std::vector<ForwardPass::Job> all;
  std::vector<std::vector<std::vector<std::size_t>>> parts;
  std::size_t passes = 0;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const Job& job = jobs[j];
    AdapterTrainer& trainer = *job.trainer;
    results[j].make_room(job.data->size(), job.loss.kind);
    if (trainer.pending_calls_++ == 0) trainer.gradients_.clear();
    const double normaliser = loss_normaliser(*job.data, job.loss);
    all.push_back({job.data, &job.loss, normaliser, {}, &results[j], &sums[j], trainer.weights_.get(), &trainer.gradients_});
    parts.push_back(normaliser == 0 ? std::vector<std::vector<std::size_t>>() : parts_of(*job.data, base.options()));  // all masked: no gradient
    passes = std::max(passes, parts.back().size());
  }
  try {
    for (std::size_t pass = 0; pass < passes; ++pass) {
      std::vector<ForwardPass::Job> now;
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        if (pass >= parts[j].size()) continue;
        now.push_back(all[j]);
        now.back().part = parts[j][pass];
      }
      ForwardPass::Settings settings;
      settings.gradient = true;
      base.pass().run(*base.weights(), settings, now);
    }
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      total_losses(sums[j], 0.0, results[j]);
      LossMetricSums metrics(jobs[j].loss);
      if (results[j].rows > 0) metrics.add(*jobs[j].data, results[j]);  // none: everything is masked, and nothing was computed
      results[j].metrics = metrics.metrics(results[j]);
      if (!base.options().accumulate) jobs[j].trainer->gradients_.finish();
    }
  } catch (...) {
    for (const Job& job : jobs) job.trainer->abandon_gradients();
    throw;
  }
  return results;
}

std::vector<std::vector<float>> AdapterTrainer::score(const std::vector<TrainSequence>& data) { return score_with(*base_, weights_.get(), &gradients_, data); }

void AdapterTrainer::abandon_gradients() {
  pending_calls_ = 0;
  try {
    backend().stream().synchronize();
  } catch (const std::exception&) {  // of the work that is abandoned
  }
}

OptimResult AdapterTrainer::optim_step(const AdamParameters& adam) {
  if (pending_calls_ == 0) fail(ErrorCode::invalid_argument, "optim_step without a forward_backward before it");
  if (base_->options().accumulate) gradients_.finish();
  pending_calls_ = 0;
  const Buffer norm_buffer = backend().device().allocate(DType::f32, 1, 1, MemoryCategory::workspace);
  SquareSum squares{norm_buffer.view(), {}};
  const auto count = static_cast<ParameterId>(layout_->manifest().parameters().size());
  for (ParameterId id = 0; id < count; ++id) squares.gradients.push_back(gradients_.gradient(id));
  backend().launch(&KernelTable::square_sum, squares);
  const double norm = backend().stream().read(norm_buffer.view()).get()[0];
  if (!std::isfinite(norm)) fail(ErrorCode::numeric, "the gradient norm of step {} is not finite; the adapter is unchanged", step_);
  drop_kept();
  auto next = std::make_shared<AdapterWeights>();
  next->layout = layout_;
  next->version = static_cast<std::uint64_t>(++step_);
  const AdamStep step(adam, step_);
  for (ParameterId id = 0; id < count; ++id) {
    const auto at = static_cast<std::size_t>(id);
    next->parameters.push_back(allocate_parameter(backend(), layout_->manifest().parameter(id), DType::f32, MemoryCategory::weights));
    backend().launch(&KernelTable::adamw, step.of(weights_->parameters[at].view(), first_moments_[at].view(), second_moments_[at].view(),
                                                  next->parameters.back().view(), {}, gradients_.gradient(id), norm_buffer.view(), true));
    gradients_.drop(id);
  }
  weights_ = std::move(next);
  return {norm, weights_->version};
}

WeightImages AdapterTrainer::images(const std::vector<Buffer>& buffers) {
  WeightImages images;
  for (const Buffer& b : buffers) images.push_back(backend().stream().read(b.view()).get());
  return images;
}

WeightImages AdapterTrainer::gradient_images() {
  if (base_->options().accumulate) fail(ErrorCode::internal, "gradients are in the accumulator until optim_step");
  WeightImages images;
  for (std::size_t i = 0; i < layout_->manifest().parameters().size(); ++i)
    images.push_back(backend().stream().read(gradients_.gradient(static_cast<ParameterId>(i))).get());
  return images;
}

WeightImages AdapterTrainer::master_images() { return images(weights_->parameters); }

TrainerState AdapterTrainer::state() { return {master_images(), images(first_moments_), images(second_moments_), step_}; }

void AdapterTrainer::restore(const TrainerState& state) {
  abandon_gradients();
  drop_kept();
  step_ = state.step;
  weights_ = make_adapter(backend(), layout_, state.masters, static_cast<std::uint64_t>(state.step));
  for (std::size_t i = 0; i < first_moments_.size(); ++i) {
    backend().stream().write(first_moments_[i].view(), state.first_moments[i]);
    backend().stream().write(second_moments_[i].view(), state.second_moments[i]);
  }
}

std::uint64_t AdapterTrainer::gradient_hash() { return images_hash(layout_->manifest(), gradient_images()); }
std::uint64_t AdapterTrainer::master_hash() { return images_hash(layout_->manifest(), master_images()); }

}  // namespace lockstep
