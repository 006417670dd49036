#include "host/resting.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/training_checkpoint.h"
#include "host/model_state.h"

namespace lockstep {

TrainedModel& Resting::trained(const OnExecutor& on, HostedModel& model) {
  ModelWork& work = model.work.at(on);
  if (work.trained) return *work.trained;
  make_place(on, model);
  const ModelRecord record = model.record();
  const ModelSettings& settings = record.settings;
  MemoryLedger::Claim room = memory_.of_model(on, model, settings), gradients;
  if (work.waiting_bytes > 0) gradients = memory_.claim(on, "gradients", model.owner, work.waiting_bytes, fmt::format("the gradient of model '{}'", model.id));
  const TurnRoom reading = memory_.reading(on, settings, fmt::format("reading model '{}' from disk", model.id));
  auto fresh = make(on, model.owner, settings);  // the model's only when it is what it was
  if (record.steps > 0 || std::filesystem::exists(models_.folder(model))) {
    std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(models_.folder(model), fresh->manifest());
    if (!loaded) fail(ErrorCode::corrupt_file, "model '{}' is not on disk any more; load_state of a checkpoint goes on from there", model.id);
    restore_model(on, *fresh, std::move(loaded->checkpoint), commons_.runtime().profile, true);
  }
  gradients_.read(on, model, *fresh);
  settle(on, model, std::move(fresh), std::move(room));
  work.gradient_room = std::move(gradients);
  work.most_rows = 0;
  return *work.trained;
}

std::unique_ptr<TrainedModel> Resting::make(const OnExecutor& on, const std::string& owner, const ModelSettings& settings) {
  TrainingBase& base = commons_.base_of(on, settings);
  if ((settings.rank > 0 || settings.base_only) && !base.frozen) {  // the first one over these weights
    const bool critics = &base != commons_.base.get();
    const std::string what = critics ? "the weights under the adapters of critics" : "the ranks' shares of the weights under adapters";
    TurnRoom reading;
    if (!base.weights) reading = memory_.turn(on, nullptr, loaded_bytes(*base.opened.model, base.opened.runtime->profile).masters, what);
    memory_.hold_base(on, settings, (critics ? base.opened.own_weight_bytes() : 0) + memory_.figures(on, settings).base, what);
    if (!base.weights) base.weights = base.opened.weight_set();
  }
  TrainedSettings own = settings;
  if (base.options.kept_forwards) own.kept_owner = commons_.generation->callers().prefix_owner(owner);  // of what its own samples kept
  return make_trained_model(base, own);
}

void Resting::settle(const OnExecutor& on, HostedModel& model, std::unique_ptr<TrainedModel> trained, MemoryLedger::Claim room) {
  ModelWork& work = model.work.at(on);
  work.trained = std::move(trained);
  work.room = std::move(room);
  model.in_memory = true;
  model.rested = false;
}

// The fresh one stands beside the one that is there, which stays where anything fails. Where both have no room, the one that is there rests
// on disk meanwhile.
void Resting::replace(const OnExecutor& on, HostedModel& model, const ModelSettings& settings, const std::function<void(TrainedModel&)>& fill) {
  ModelWork& work = model.work.at(on);
  if (!work.trained) make_place(on, model);
  const std::string what = fmt::format("reading the weights of model '{}'", model.id);
  MemoryLedger::Claim room;
  TurnRoom reading;
  const auto make_room = [&] {
    room = memory_.of_model(on, model, settings);
    reading = memory_.reading(on, settings, what);
  };
  try {
    const TurnRoom stays = memory_.turn(on, &model, 0, what);  // others rest first
    make_room();
  } catch (const Error& e) {
    room.release();
    if (e.code() != ErrorCode::resource_exhausted || !work.trained) throw;
    rest(on, model);
    make_room();
  }
  auto fresh = make(on, model.owner, settings);
  fill(*fresh);
  let_go(on, model);
  {
    const auto state = model.state.lock();
    state->gradients_gone = false;
  }
  gradients_.forget(on, model);
  settle(on, model, std::move(fresh), std::move(room));
}

void Resting::write_down(const OnExecutor& on, HostedModel& model) {
  ModelWork& work = model.work.at(on);
  if (!work.trained) return;
  {
    const auto state = model.state.lock();
    if (!state->lost.empty() || !state->record.changed) return;  // unchanged: its settings make it again, or what is on disk
  }
  const std::filesystem::path folder = models_.folder(model);
  std::filesystem::create_directories(folder);
  write_trained_model(on, folder, *work.trained, commons_.runtime().profile.training_digest(model.record().declares), true);
  ModelRecord record;
  {
    const auto state = model.state.lock();
    state->record.changed = false;
    record = state->record;
  }
  models_.store(record);
}

std::vector<std::shared_ptr<HostedModel>> Resting::idle(const OnExecutor& on) {
  struct Idle {
    bool in_batch = false;
    double used = 0;
    std::shared_ptr<HostedModel> model;
  };
  std::vector<Idle> found;
  for (const std::shared_ptr<HostedModel>& model : models_.every()) {
    const TrainedModel* trained = model->work.at(on).trained.get();
    if (!trained || memory_.is_busy(on, *model)) continue;
    const auto state = model->state.lock();
    found.push_back({trained->unfinished().batch, state->record.used, model});
  }
  std::sort(found.begin(), found.end(), [](const Idle& a, const Idle& b) { return std::pair(a.in_batch, a.used) < std::pair(b.in_batch, b.used); });
  std::vector<std::shared_ptr<HostedModel>> models;
  for (Idle& one : found) models.push_back(std::move(one.model));
  return models;
}

std::int64_t Resting::movable_bytes(const OnExecutor& on) {
  std::int64_t bytes = 0;
  for (const std::shared_ptr<HostedModel>& model : idle(on)) bytes += model->work.at(on).room.bytes() + model->work.at(on).gradient_room.bytes();
  return bytes;
}

bool Resting::rest_one(const OnExecutor& on) {
  const std::vector<std::shared_ptr<HostedModel>> models = idle(on);
  return std::any_of(models.begin(), models.end(), [&](const auto& model) { return try_rest(on, *model); });
}

void Resting::make_place(const OnExecutor& on, const HostedModel& wanted) {
  const std::int64_t most = commons_.options.max_models;
  std::int64_t left = 0;
  for (const std::shared_ptr<HostedModel>& model : models_.every()) left += model->work.at(on).trained && model.get() != &wanted;
  if (left < most) return;
  for (const std::shared_ptr<HostedModel>& model : idle(on)) {
    if (model.get() == &wanted || !try_rest(on, *model)) continue;
    if (--left < most) return;
  }
  fail(ErrorCode::resource_exhausted, "there are {} models in memory, allowed are {} (--max-models), and none of them could be written to disk", left, most);
}

// Batches that have begun are done in fewer readings where nobody takes their places between their pieces. Only for some turns: whoever
// waits has its own then, and a batch whose next piece never comes holds nobody up.
bool Resting::gives_way(const OnExecutor& on, HostedModel& model) {
  constexpr int kMostTurns = 8;
  ModelWork& work = model.work.at(on);
  std::int64_t there = 0, begun = 0;
  if (!work.trained)
    for (const std::shared_ptr<HostedModel>& other : models_.every())
      if (const TrainedModel* trained = other->work.at(on).trained.get()) ++there, begun += trained->unfinished().batch;
  if (there < commons_.options.max_models || begun < there || work.gave_way >= kMostTurns) {
    work.gave_way = 0;
    return false;
  }
  ++work.gave_way;
  return true;
}

bool Resting::try_rest(const OnExecutor& on, HostedModel& model) {
  try {
    rest(on, model);
    return true;
  } catch (const std::exception& e) {
    log_warning("a model could not be put to rest on disk", {{"model", model.id}, {"reason", e.what()}});
    return false;
  }
}

void Resting::rest(const OnExecutor& on, HostedModel& model) {
  write_down(on, model);
  gradients_.save(on, model);
  ++commons_.statistics.rested;
  let_go(on, model);
  model.rested = true;
}

void Resting::let_go(const OnExecutor& on, HostedModel& model) {
  ModelWork& work = model.work.at(on);
  model.in_memory = false;
  work.trained.reset();
  work.room.release();
  work.gradient_room.release();
  work.most_rows = 0;
}

// A model that has work stays for it.
bool Resting::rest_one_silent(const OnExecutor& on) {
  for (const std::shared_ptr<HostedModel>& model : idle(on)) {
    if (!sessions_.is_finished(model->session) && !sessions_.is_silent(model->session, commons_.options.session_idle_seconds)) continue;
    {
      const auto state = model->state.lock();
      if (state->activity.open > static_cast<std::int64_t>(state->waiting.size())) continue;
    }
    return try_rest(on, *model);
  }
  return false;
}

std::string Resting::why_paused(const std::string& owner, const std::string& request) const {
  const std::string id = commons_.futures.scope_of(request, owner);
  const std::shared_ptr<HostedModel> model = models_.any(id);
  if (!model || model->in_memory) return {};
  const std::vector<std::shared_ptr<HostedModel>> every = models_.every();
  const auto there = std::count_if(every.begin(), every.end(), [](const auto& one) { return one->in_memory.load(); });
  if (there >= commons_.options.max_models)
    return fmt::format("model '{}' waits for a place in memory: {} are taken of {} (--max-models), and whoever has work takes turns", id, there,
                       commons_.options.max_models);
  if (model->rested) return fmt::format("model '{}' is on disk and waits for its turn to come back to memory (--memory-megabytes)", id);
  return {};
}

}  // namespace lockstep
