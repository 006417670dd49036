// Passes of a stage of a pipeline: one of the runs of segments into which the stages of a replica cut the model (docs/ranks.md). A stage gets the rows of
// the stage before and sends its own on; in the backward their gradients go the other way. Micro-batches fill the stages: each runs as many forwards
// as stages follow it, then a backward and a forward in turns, so no stage holds more passes than there are stages.
#include <algorithm>

#include "model/sharding.h"
#include "parallel/transfer.h"
#include "train/forward_pass_parts.h"

namespace lockstep {

namespace {
// Of pass `i`: gradients leave with the last one.
ForwardPass::Settings settings_of_pass(ForwardPass::Settings settings, std::size_t i, std::size_t passes) {
  if (i + 1 < passes) settings.leaving = nullptr;
  return settings;
}
}  // namespace

void ForwardPass::run(const WeightSet& weights, const Settings& settings, std::size_t passes, const JobsOf& jobs_of) {
  if (sharding_ && sharding_->place().layout.pp > 1) return run_stage(weights, settings, passes, jobs_of);
  for (std::size_t i = 0; i < passes; ++i) {
    if (const std::vector<Job> jobs = jobs_of(i); !jobs.empty()) {
      run(weights, settings_of_pass(settings, i, passes), jobs);
    } else if (settings.gathered) {
      settings.gathered->idle_forward();
      if (settings.gradient) settings.gathered->idle_backward();
    }
  }
}

void ForwardPass::run_stage(const WeightSet& weights, const Settings& settings, std::size_t count, const JobsOf& jobs_of) {
  const RankPlace& place = sharding_->place();
  const int follow = sharding_->stages() - 1 - place.stage();  // stages behind this one
  std::vector<std::unique_ptr<Pass>> passes(count);
  if (follow < 0) {  // it has no segments
    if (joins_tied(settings)) join_tied(passes, settings);
    return;
  }
  Communicator *const before = place.stage() > 0 ? place.before : nullptr, *const after = follow > 0 ? place.after : nullptr;
  Device& device = runtime_.backend.device();
  Stream& stream = runtime_.backend.stream();
  const std::int64_t hidden = runtime_.model->facts().hidden;
  const bool through = through_head(settings), waits = joins_tied(settings);
  GatheredWeights* const gathered = settings.gathered;
  std::vector<std::vector<Job>> jobs(count);
  std::vector<Buffer> dy(count);  // of this stage's rows

  const auto with_before = [&](const View& to, const View& from) {
    if (before) swap_over(*before, stream, to, from);
  };
  const auto with_after = [&](const View& to, const View& from) {
    if (after) swap_over(*after, stream, to, from);
  };
  // Without jobs a pass is idle: the stages of the replica exchange nothing, and gather and join what those of other replicas do.
  const auto prepared = [&](std::size_t i) {
    if (i >= count) return;
    jobs[i] = jobs_of(i);
    if (jobs[i].empty()) return;
    passes[i] = prepare(weights, settings_of_pass(settings, i, count), jobs[i], false);
    if (before) passes[i]->stage.rows = device.allocate(DType::f32, passes[i]->batch->count(), hidden, MemoryCategory::activations);
  };
  const auto input = [&](std::size_t i) { return before && i < count && passes[i] ? passes[i]->stage.rows.view() : View{}; };
  const auto output = [&](std::size_t i) { return after && passes[i] ? passes[i]->hidden.view() : View{}; };
  const auto computed = [&](std::size_t i) {
    if (passes[i]) forward(*passes[i]);
    else gathered->idle_forward();
  };
  const auto gradient = [&](std::size_t i) {
    if (after && through && passes[i]) dy[i] = device.allocate(DType::f32, passes[i]->batch->tape_count(), hidden, MemoryCategory::activations);
    return dy[i].view();
  };
  const auto finished = [&](std::size_t i) {
    if (!passes[i]) {
      if (settings.gradient) gathered->idle_backward(!waits);
      return;
    }
    Pass& pass = *passes[i];
    if (gathered) gathered->use_head();
    if (!after) dy[i] = run_heads(pass, settings, jobs[i]);
    if (settings.gradient) {
      if (gathered) gathered->use_last();
      backward(pass, std::exchange(dy[i], Buffer()));
      if (!after && !waits) with_head(gathered, [&] { deposit_head(pass, settings); });
    }
    read_results(pass, jobs[i]);
    work_ += pass.context->counters().read();
    work_ += pass.asked;
    give_back(pass);
  };
  // Of the rows that came from the stage before.
  const auto input_gradient = [&](std::size_t i) { return through && before && passes[i] ? passes[i]->stage.gradient : Buffer(); };
  const auto left = [&](std::size_t i) {
    if (!passes[i]) return;
    passes[i]->stage = {};
    if (!waits || (before && after)) passes[i].reset();
  };

  const std::size_t ahead = settings.gradient ? std::min(static_cast<std::size_t>(follow), count) : 0;
  for (std::size_t i = 0; i < ahead; ++i) {
    prepared(i);
    with_before({}, input(i));
    computed(i);
    with_after(output(i), {});
  }
  if (ahead < count) {
    prepared(ahead);
    with_before({}, input(ahead));
  }
  for (std::size_t i = 0; i + ahead < count; ++i) {
    const std::size_t newest = i + ahead;
    computed(newest);
    with_after(output(newest), settings.gradient ? gradient(i) : View{});
    finished(i);
    prepared(newest + 1);
    const Buffer dx = input_gradient(i);
    with_before(dx.view(), input(newest + 1));
    left(i);
  }
  for (std::size_t i = count - ahead; i < count; ++i) {
    with_after({}, gradient(i));
    finished(i);
    with_before(input_gradient(i).view(), {});
    left(i);
  }
  if (waits) join_tied(passes, settings);
}

// Whether the input embedding is trained, is the head as well, and stands in another stage: its gradient is made with the head's, when all passes are
// through.
bool ForwardPass::joins_tied(const Settings& settings) const {
  const Parameter& head = runtime_.model->manifest().parameter(runtime_.model->facts().head);
  return head.tied && sharding_->stages() > 1 && settings.gradients && through_head(settings);
}

void ForwardPass::join_tied(const std::vector<std::unique_ptr<Pass>>& passes, const Settings& settings) {
  const int last = sharding_->stages() - 1;
  with_head(settings.gathered, [&] {
    for (const std::unique_ptr<Pass>& pass : passes) {
      View mine, into;  // of an idle pass none
      if (pass && sharding_->first_stage()) mine = pass->table_gradient.view();
      if (pass && sharding_->last_stage()) {
        pass->table_gradient =
            runtime_.backend.device().allocate(DType::f32, pass->batch->tape_count(), runtime_.model->facts().hidden, MemoryCategory::activations);
        into = pass->table_gradient.view();
      }
      send_between(*sharding_->place().stages, runtime_.backend.stream(), 0, last, mine, into);
      if (pass && sharding_->last_stage()) deposit_head(*pass, settings);
    }
  });
}

void share_tied_gradient(const Sharding& sharding, Backend& backend, GradientSet& gradients, ParameterId head) {
  if (!sharding.place().stages || sharding.stages() == 1) return;
  const View mine = sharding.last_stage() ? gradients.gradient(head) : View{}, into = sharding.first_stage() ? gradients.gradient(head) : View{};
  send_between(*sharding.place().stages, backend.stream(), sharding.stages() - 1, 0, mine, into);
}

}  // namespace lockstep
