#include "train/adapter_trainer.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "observe/trace.h"
#include "train/gradient_file.h"
#include "train/loss_columns.h"
#include "train/loss_metrics.h"
#include "train/whole_images.h"

namespace lockstep {

namespace {
// A job's own error goes to its entry of `failures`, or is thrown when that is null.
void fail_job(AdapterTrainer::Failures* failures, std::size_t job, const Error& error) {
  if (!failures) throw error;
  (*failures)[job] = error;
}

LossOptions no_loss() {
  LossOptions none;
  none.kind = LossKind::none;
  return none;
}
}  // namespace

AdapterTrainer::AdapterTrainer(std::shared_ptr<FrozenBase> base, std::shared_ptr<const AdapterLayout> layout, const WeightImages& masters,
                               const OptimizerFamily& optimizer, std::uint64_t owner)
    : base_(std::move(base)), layout_(std::move(layout)), parts_(static_cast<std::size_t>(base_->ranks().local())), owner_(owner) {
  base_->each([&](int local, const BaseRank& rank) {
    parts_[static_cast<std::size_t>(local)] = std::make_unique<AdapterRank>(rank, layout_, masters, optimizer, base_->options());
  });
}

void AdapterTrainer::check_usable() const {
  for (const auto& part : parts_) part->state().check_usable();
}

void AdapterTrainer::break_off() const {
  for (const auto& part : parts_) part->state().break_off();
}

void AdapterTrainer::abandon_gradients() {
  for (const auto& part : parts_) part->gradients().abandon();
}

template <class F>
WeightImages AdapterTrainer::images(const F& of) const {
  check_usable();
  const Runtime& runtime = base_->runtime();
  const auto sharding = [&](const RankPlace& place) { return Sharding(*layout_, Sharding(*runtime.model, runtime.profile, place)); };
  return whole_images(base_->ranks(), sharding, [&](int local) { return of(part(local)); });
}

void AdapterTrainer::begin(const std::vector<TrainSequence>& data, const LossOptions& loss) {
  check_usable();
  check_data(base_->runtime(), data, loss, false, base_->options().declared_prefixes);
  first().gradients().check_may_open();
}

ForwardBackwardResult AdapterTrainer::forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss) {
  return std::move(forward_backward_together({{this, &data, loss}})[0]);
}

std::vector<ForwardBackwardResult> AdapterTrainer::forward_backward_together(const std::vector<Job>& jobs, Failures* failures) {
  const TraceSpan span("training", "forward and backward");
  if (failures) failures->assign(jobs.size(), std::nullopt);
  std::set<const AdapterTrainer*> seen;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const Job& job = jobs[j];
    if (!seen.insert(job.trainer).second) fail(ErrorCode::invalid_argument, "an adapter comes twice in one call; allowed is once, with all its data");
    if (job.trainer->base_ != jobs[0].trainer->base_) fail(ErrorCode::invalid_argument, "adapters of several bases in one call; allowed is one base");
  }
  std::vector<ForwardBackwardResult> results(jobs.size());
  if (jobs.empty()) return results;
  FrozenBase& base = *jobs[0].trainer->base_;
  std::vector<double> normalisers(jobs.size());
  // All jobs are checked before anything changes.
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    try {
      jobs[j].trainer->begin(*jobs[j].data, jobs[j].loss);
      normalisers[j] = loss_normaliser(*jobs[j].data, jobs[j].loss);
    } catch (const Error& e) {
      fail_job(failures, j, e);
    }
  }
  const Failures checked = failures ? *failures : Failures(jobs.size());
  std::vector<BaseRank::Outcome> outcomes;
  try {
    base.each([&](int local, BaseRank& rank) {
      std::vector<BaseRank::Job> own(jobs.size());
      Failures failed = checked;
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        if (failed[j]) continue;
        AdapterRank& part = jobs[j].trainer->part(local);
        part.gradients().open({});
        own[j] = {
            jobs[j].data, &jobs[j].loss, normalisers[j], part.weights().get(), part.gradients().set(), jobs[j].trainer->owner_, part.sampled_as().identity()};
      }
      std::vector<BaseRank::Outcome> done = rank.run({.gradient = true}, own, failures ? &failed : nullptr);
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        if (!own[j].data) continue;
        Gradients& gradients = jobs[j].trainer->part(local).gradients();
        if (failed[j]) gradients.abandon();
        else gradients.close();
      }
      if (local > 0) return;
      outcomes = std::move(done);
      if (failures) *failures = std::move(failed);
    });
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (failures && (*failures)[j]) continue;
      results[j] = std::move(outcomes[j].result);
      total_losses(outcomes[j].sums, 0.0, results[j]);
      LossMetricSums metrics(jobs[j].loss);
      if (results[j].rows > 0) metrics.add(*jobs[j].data, results[j]);  // none: everything is masked, and nothing was computed
      results[j].metrics = metrics.metrics(results[j]);
    }
  } catch (...) {
    for (const Job& job : jobs) job.trainer->abandon_gradients();
    throw;
  }
  return results;
}

std::vector<std::vector<float>> AdapterTrainer::score(const std::vector<TrainSequence>& data) { return std::move(score_together(*base_, {{this, &data}})[0]); }

std::vector<std::vector<std::vector<float>>> AdapterTrainer::score_together(FrozenBase& base, const std::vector<ScoreJob>& jobs, Failures* failures) {
  const TraceSpan span("training", "log-probabilities");
  const LossOptions none = no_loss();
  if (failures) failures->assign(jobs.size(), std::nullopt);
  for (const ScoreJob& job : jobs)
    if (job.trainer && job.trainer->base_.get() != &base) fail(ErrorCode::invalid_argument, "adapters of several bases in one call; allowed is one base");
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    try {
      check_data(base.runtime(), *jobs[j].data, none, false, base.options().declared_prefixes);
    } catch (const Error& e) {
      fail_job(failures, j, e);
    }
  }
  const Failures checked = failures ? *failures : Failures(jobs.size());
  std::vector<BaseRank::Outcome> outcomes;
  base.each([&](int local, BaseRank& rank) {
    std::vector<BaseRank::Job> own(jobs.size());
    Failures failed = checked;
    ForwardPass::Settings settings;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (failed[j]) continue;
      AdapterRank* const part = jobs[j].trainer ? &jobs[j].trainer->part(local) : nullptr;
      own[j] = {.data = jobs[j].data, .loss = &none, .owner = jobs[j].trainer ? jobs[j].trainer->owner_ : jobs[j].owner};
      if (part) own[j].adapter = part->weights().get(), own[j].whole_adapter = part->sampled_as().identity();
      if (!part || jobs.size() > 1) continue;
      own[j].gradients = part->gradients().for_kept(true);  // where a backward may follow
      settings.keep = own[j].gradients != nullptr;
    }
    std::vector<BaseRank::Outcome> done = rank.run(settings, own, failures ? &failed : nullptr);
    if (local > 0) return;
    outcomes = std::move(done);
    if (failures) *failures = std::move(failed);
  });
  std::vector<std::vector<std::vector<float>>> out;
  for (BaseRank::Outcome& outcome : outcomes) out.push_back(std::move(outcome.result.logprobs));
  return out;
}

OptimResult AdapterTrainer::optim_step(const AdamParameters& adam) {
  const TraceSpan span("training", "optimizer step");
  check_usable();
  OptimResult result;
  const std::int64_t before = step();
  try {
    base_->each([&](int local, const BaseRank&) {
      const OptimResult own = part(local).optim_step(adam);
      if (local == 0) result = own;
    });
  } catch (...) {
    // As Trainer's: where a rank has begun to write, none can go on.
    const bool wrote =
        !base_->ranks().all_here() || std::any_of(parts_.begin(), parts_.end(), [&](const auto& part) { return part->state().steps() != before; });
    if (wrote) break_off();
    abandon_gradients();
    throw;
  }
  return result;
}

void AdapterTrainer::save_gradients(const std::filesystem::path& folder) {
  check_usable();
  const Ranks& ranks = base_->ranks();
  if (!ranks.all_here()) fail(ErrorCode::unsupported, "gradients of {} ranks of which {} are here, allowed is all of them", ranks.size(), ranks.local());
  AtomicFolder files(folder, AtomicFolder::Existing::replace);
  base_->each([&](int local, const BaseRank&) {
    CheckedWriter file(gradient_file(files.partial(), part(local).rank()));
    part(local).gradients().write(file);
    file.commit();
  });
  files.commit();
}

void AdapterTrainer::load_gradients(const std::filesystem::path& folder) {
  check_usable();
  try {
    base_->each([&](int local, const BaseRank&) {
      CheckedReader file(gradient_file(folder, part(local).rank()));
      part(local).gradients().read(file, nullptr);
      file.finish();
    });
  } catch (...) {
    abandon_gradients();
    throw;
  }
}

std::shared_ptr<const AdapterWeights> AdapterTrainer::weights() {
  std::shared_ptr<const AdapterWeights> whole = first().weights();
  if (first().sharding()) {
    const std::uint64_t version = whole->version;
    whole = whole_.of(version, base_->ranks().all_here(), [&] { return make_adapter(base_->runtime().backend, layout_, state().masters(), version); });
  }
  for (const auto& part : parts_) part->sampled_as().set(whole->identity);
  return whole;
}

WeightImages AdapterTrainer::gradient_images() {
  return images([](AdapterRank& rank) { return rank.gradient_images(); });
}

void AdapterTrainer::restore(const TrainerState& state) {
  restore([&](const StateShare& share) { return share.reader(state); }, state.step);
}

void AdapterTrainer::restore(const std::function<StateReader(StateShare&)>& reader, std::int64_t steps) {
  break_off();  // until every rank is restored
  base_->each([&](int local, const BaseRank&) {
    StateShare share = part(local).share();
    part(local).restore(reader(share), steps);
  });
  whole_.forget();
}

void AdapterTrainer::each_share(const std::function<void(StateShare&)>& work) {
  check_usable();
  base_->each([&](int local, const BaseRank&) {
    StateShare share = part(local).share();
    work(share);
  });
}

WeightImages AdapterState::images(StatePart part) const {
  return trainer_.images([part](AdapterRank& rank) { return rank.state().images(part); });
}

std::vector<float> AdapterState::image(StatePart part, std::size_t parameter) const {
  if (trainer_.base_->ranks().size() == 1) return trainer_.first().state().image(part, parameter);
  return std::move(trainer_.images([&](AdapterRank& rank) {
    WeightImages one(trainer_.layout().manifest().parameters().size());
    one[parameter] = rank.state().image(part, parameter);
    return one;
  })[parameter]);
}

TrainerState AdapterState::all() const { return {masters(), images(StatePart::first_moment), images(StatePart::second_moment), trainer_.step()}; }

std::uint64_t AdapterState::master_hash() const { return images_hash(trainer_.layout().manifest(), masters()); }

}  // namespace lockstep
