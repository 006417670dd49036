#include "train/adapter_trainer.h"

#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "tensor/file_memory.h"
#include "train/adam.h"
#include "train/filed_step.h"
#include "train/kept_passes.h"
#include "train/loss_columns.h"
#include "train/loss_metrics.h"
#include "train/muon.h"
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
  GradientSet* gradients = nullptr;  // where a gradient may follow: of one job alone
};

// A job's own error goes to its place of `failures`, or is thrown where there are none.
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
        now.push_back({jobs[j].data, &none, 1.0, parts[j][pass], &results[j], &sums[j], jobs[j].adapter, jobs[j].gradients, failures ? &(*failures)[j] : nullptr});
    if (!now.empty()) base.pass().run(*base.weights(), {.keep = jobs[0].gradients != nullptr}, now);
  }
  std::vector<std::vector<std::vector<float>>> out;
  for (ForwardBackwardResult& result : results) out.push_back(std::move(result.logprobs));
  return out;
}

// Forward only, with a loss.
void evaluate_with(FrozenBase& base, const AdapterWeights* adapter, OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) {
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

std::vector<std::vector<float>> FrozenBase::score(const std::vector<TrainSequence>& data) { return std::move(score_with(*this, {{nullptr, &data}}, nullptr)[0]); }

void FrozenBase::evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) { evaluate_with(*this, nullptr, batch, places, piece); }

AdapterTrainer::AdapterTrainer(std::shared_ptr<FrozenBase> base, std::shared_ptr<const AdapterLayout> layout, const WeightImages& masters, OptimizerFamily optimizer)
    : base_(std::move(base)), layout_(std::move(layout)), weights_(make_adapter(backend(), layout_, masters, 0)), optimizer_(optimizer) {
  reserve_state_file();
  for (const Parameter& p : layout_->manifest().parameters())
    for (std::vector<Buffer>* moments : {&first_moments_, &second_moments_}) {
      if (moments == &second_moments_ && optimizer_ == OptimizerFamily::dimuon) continue;
      if (state_file_) {  // which begins with zeros
        moments->push_back(backend().device().allocate_in(state_file_, DType::f32, 1, p.size(), MemoryCategory::optimizer_file));
        continue;
      }
      moments->push_back(allocate_parameter(backend(), p, DType::f32, MemoryCategory::optimizer));
      backend().stream().fill_zero(moments->back().view());
    }
}

AdapterTrainer::~AdapterTrainer() { close_gradients(); }

void AdapterTrainer::open_gradients() {
  if (gradients_) gradients_->clear();
  else gradients_ = std::make_unique<GradientSet>(backend(), layout_->manifest(), true);
}

void AdapterTrainer::close_gradients() {
  if (gradients_ && base_->options().kept) base_->options().kept->drop(gradients_.get());
  gradients_.reset();
}

void AdapterTrainer::reserve_state_file() {
  Device& device = backend().device();
  const std::string& folder = base_->options().optimizer_folder;
  if (folder.empty() || device.counting()) return;
  std::size_t bytes = 0;
  for (const Parameter& p : layout_->manifest().parameters()) bytes += (optimizer_ == OptimizerFamily::dimuon ? 1 : 2) * device.file_bytes(DType::f32, p.size());
  state_file_ = std::make_shared<FileMemory>(folder, bytes);
}

// All of it: an adapter's state is small.
void AdapterTrainer::leave_state() {
  if (!state_file_ || !base_->options().release_state) return;
  backend().stream().enqueue([file = state_file_] { file->release(0, file->taken()); });
}

void AdapterTrainer::check_usable() const {
  if (broken_off_)
    fail(ErrorCode::unsupported, "step {} was broken off by an error and the optimizer's state is of no step; restore a checkpoint", step_);
}

void AdapterTrainer::begin(const std::vector<TrainSequence>& data, const LossOptions& loss) {
  check_usable();
  check_data(base_->runtime(), data, loss, false, base_->options().declared_prefixes);
  if (pending_calls_ > 0 && !base_->options().accumulate)
    fail(ErrorCode::internal, "a second forward_backward before optim_step needs TrainerOptions::accumulate");
}

ForwardBackwardResult AdapterTrainer::forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss) {
  return std::move(forward_backward_together({{this, &data, loss}})[0]);
}

std::vector<ForwardBackwardResult> AdapterTrainer::forward_backward_together(const std::vector<Job>& jobs, Failures* failures) {
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
  // Nothing changes before all have been looked at.
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
      if (trainer.pending_calls_ == 0) trainer.open_gradients();
      ++trainer.pending_calls_;
      all[j] = {job.data, &job.loss, normalisers[j], {}, &results[j], &sums[j], trainer.weights_.get(), trainer.gradients_.get(), failures ? &(*failures)[j] : nullptr};
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
      if (!base.options().accumulate) jobs[j].trainer->gradients_->finish();
    }
  } catch (...) {
    for (const Job& job : jobs) job.trainer->abandon_gradients();
    throw;
  }
  return results;
}

std::vector<std::vector<float>> AdapterTrainer::score(const std::vector<TrainSequence>& data) {
  return std::move(score_together(*base_, {{this, &data}})[0]);
}

std::vector<std::vector<std::vector<float>>> AdapterTrainer::score_together(FrozenBase& base, const std::vector<ScoreJob>& jobs, Failures* failures) {
  std::vector<Scored> scored;
  for (const ScoreJob& job : jobs) {
    if (job.trainer && job.trainer->base_.get() != &base) fail(ErrorCode::invalid_argument, "adapters of several bases in one call; allowed is one base");
    scored.push_back({job.trainer ? job.trainer->weights_.get() : nullptr, job.data});
  }
  if (AdapterTrainer* one = jobs.size() == 1 && base.options().kept && base.options().kept->enabled() ? jobs[0].trainer : nullptr) {
    if (!one->gradients_) one->open_gradients();
    scored[0].gradients = one->gradients_.get();
  }
  return score_with(base, scored, failures);
}

void AdapterTrainer::evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) {
  evaluate_with(*base_, weights_.get(), batch, places, piece);
}

void AdapterTrainer::abandon_gradients() {
  pending_calls_ = 0;
  try {
    backend().stream().synchronize();
  } catch (const std::exception&) {  // of the work that is abandoned
  }
  close_gradients();
}

std::vector<std::pair<std::string, double>> AdapterTrainer::group_norms(double scale) {
  GradientGroups groups;
  const Manifest& model = base_->runtime().model->manifest();
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const AdapterLayout::Place& place = layout_->place(static_cast<ParameterId>(i));
    for (const ParameterId id : {place.a, place.b})
      if (id >= 0) add_to_group(groups, gradient_group(model.parameters()[i]), gradients_->gradient(id));
  }
  return lockstep::group_norms(backend(), groups, scale);
}

OptimResult AdapterTrainer::optim_step(const AdamParameters& wanted) {
  check_usable();
  if (pending_calls_ == 0) fail(ErrorCode::invalid_argument, "optim_step without a forward_backward before it");
  if (base_->options().accumulate) gradients_->finish();
  pending_calls_ = 0;
  const Buffer norm_buffer = backend().device().allocate(DType::f32, 1, 1, MemoryCategory::workspace);
  SquareSum squares{norm_buffer.view(), {}};
  const auto count = static_cast<ParameterId>(layout_->manifest().parameters().size());
  for (ParameterId id = 0; id < count; ++id) squares.gradients.push_back(gradients_->gradient(id));
  backend().launch(&KernelTable::square_sum, squares);
  const double norm = backend().stream().read(norm_buffer.view()).get()[0];
  if (!std::isfinite(norm)) fail(ErrorCode::numeric, "the gradient norm of step {} is not finite; the adapter is unchanged", step_);
  OptimResult result;
  if (wanted.group_norms) result.group_norms = group_norms(wanted.gradient_scale);
  AdamParameters adam = wanted;
  result.gradient_norm = take_scale(backend(), norm_buffer.view(), norm, adam);
  auto next = std::make_shared<AdapterWeights>();
  next->layout = layout_;
  next->version = static_cast<std::uint64_t>(++step_);
  broken_off_ = true;  // until the last of them is stepped
  const AdamStep step(adam, step_);
  Muon muon(backend(), {adam.learning_rate, static_cast<float>(adam.beta1), scaled_norm(norm, wanted).factor});
  for (ParameterId id = 0; id < count; ++id) {
    const auto at = static_cast<std::size_t>(id);
    next->parameters.push_back(allocate_parameter(backend(), layout_->manifest().parameter(id), DType::f32, MemoryCategory::weights));
    const View old = weights_->parameters[at].view(), out = next->parameters.back().view();
    if (optimizer_ == OptimizerFamily::dimuon)
      muon.step(layout_->manifest().parameter(id), {old, first_moments_[at].view(), out, {}, gradients_->gradient(id)});
    else
      launch_adamw(backend(), base_->options().release_state ? state_file_ : nullptr,
                   step.of(old, first_moments_[at].view(), second_moments_[at].view(), out, {}, gradients_->gradient(id), norm_buffer.view(), true));
    gradients_->drop(id);
  }
  leave_state();
  close_gradients();
  broken_off_ = false;
  weights_ = std::move(next);
  result.version = weights_->version;
  for (const Parameter& p : layout_->manifest().parameters()) result.elements += p.count * p.outputs * p.inputs;
  return result;
}

WeightImages AdapterTrainer::images(const std::vector<Buffer>& buffers) {
  WeightImages images;
  for (const Buffer& b : buffers) images.push_back(backend().stream().read(b.view()).get());
  return images;
}

WeightImages AdapterTrainer::gradient_images() {
  if (base_->options().accumulate) fail(ErrorCode::internal, "gradients are in the accumulator until optim_step");
  if (!gradients_) open_gradients();  // +0
  WeightImages images;
  for (std::size_t i = 0; i < layout_->manifest().parameters().size(); ++i)
    images.push_back(backend().stream().read(gradients_->gradient(static_cast<ParameterId>(i))).get());
  return images;
}

WeightImages AdapterTrainer::master_images() { return images(weights_->parameters); }

TrainerState AdapterTrainer::state() {
  check_usable();
  TrainerState state{master_images(), images(first_moments_), images(second_moments_), step_};
  if (optimizer_ == OptimizerFamily::dimuon)
    for (const std::vector<float>& momentum : state.first_moments) state.second_moments.emplace_back(momentum.size(), 0.0f);
  leave_state();
  return state;
}

std::vector<float> AdapterTrainer::state_image(StatePart part, std::size_t parameter) {
  check_usable();
  if (part == StatePart::second_moment && optimizer_ == OptimizerFamily::dimuon)
    return std::vector<float>(static_cast<std::size_t>(layout_->manifest().parameters()[parameter].size()));
  const std::vector<Buffer>& buffers = part == StatePart::master ? weights_->parameters : part == StatePart::first_moment ? first_moments_ : second_moments_;
  std::vector<float> values = backend().stream().read(buffers[parameter].view()).get();
  leave_state();
  return values;
}

void AdapterTrainer::restore(const TrainerState& state) {
  abandon_gradients();
  broken_off_ = true;
  step_ = state.step;
  weights_ = make_adapter(backend(), layout_, state.masters, static_cast<std::uint64_t>(state.step));
  for (std::size_t i = 0; i < first_moments_.size(); ++i) {
    backend().stream().write(first_moments_[i].view(), state.first_moments[i]);
    if (!second_moments_.empty()) backend().stream().write(second_moments_[i].view(), state.second_moments[i]);
  }
  leave_state();
  broken_off_ = false;
}

std::uint64_t AdapterTrainer::gradient_hash() { return images_hash(layout_->manifest(), gradient_images()); }
std::uint64_t AdapterTrainer::master_hash() { return images_hash(layout_->manifest(), master_images()); }

}  // namespace lockstep
