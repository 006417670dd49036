// What nobody came back for goes: sessions that were not heard from, with their models, samplers and custom losses, and snapshots without a
// name that were not sampled. Checkpoints stay until they are deleted or expire. Times are of a clock that nobody sets; a restart
// begins them anew.
#include <algorithm>

#include "base/log.h"
#include "host/operation.h"

namespace lockstep {

namespace {
constexpr std::size_t kTogether = 8;  // removed at once: others' work goes between
}  // namespace

// Whoever comes in looks whether it is time, unless others are at work: then who comes next does. The work is done where models are
// changed and written, so that nobody writes meanwhile.
void TrainingService::sweep() {
  constexpr double kMostSeconds = 60;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  const double passed = std::chrono::duration<double>(Clock::now() - swept_).count();
  if (stopping_ || passed < std::min({kMostSeconds, options_.session_seconds / 4, options_.sampler_seconds / 4})) return;
  swept_ = Clock::now();
  queue_->submit("retention", [this] {
    try {
      return remove_forgotten();
    } catch (const std::exception& e) {  // the server stops, or its disk does not take it
      log_warning("what nobody came back for could not be removed", {{"reason", e.what()}});
      return false;
    }
  });
}

// Looks and removes under one lock, so that whoever comes back in between is heard. True: there may be more.
bool TrainingService::remove_forgotten() {
  std::vector<SamplerRecord> samplers;
  std::vector<ModelRecord> models;
  std::size_t sessions = 0;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    for (auto at = samplers_.begin(); at != samplers_.end() && samplers.size() < kTogether;) {
      const Sampler& sampler = *at->second;
      const double idle = std::chrono::duration<double>(Clock::now() - sampler.used_at).count();
      if (!is_forgotten(sampler.record.session) && (!sampler.record.is_snapshot() || idle < options_.sampler_seconds)) {
        ++at;
        continue;
      }
      store_->remove("sampler", at->first);
      std::erase_if(sampler_by_number_, [&](const auto& one) { return one.second == at->first; });
      samplers.push_back(sampler.record);
      numbers_seen_.forget(at->first);
      at = samplers_.erase(at);
    }
    // A session goes when its models are gone: a server that is killed between the two finds it again.
    std::set<std::string> occupied;
    for (const auto& [id, sampler] : samplers_) occupied.insert(sampler->record.session);
    std::erase_if(unloading_, [&](const std::string& id) { return !models_.contains(id); });
    for (const auto& [id, model] : models_) {
      if (!is_forgotten(model->record.session)) continue;
      occupied.insert(model->record.session);
      if (models.size() < kTogether && unloading_.insert(id).second) models.push_back(model->record);
    }
    for (const SessionRecord& session : sessions_.silent(options_.session_seconds)) {
      if (sessions == kTogether) break;
      if (occupied.contains(session.id) || !sessions_.begin_removal(session.id, options_.session_seconds)) continue;
      remove_session(session);
      ++sessions;
    }
  }
  for (const ModelRecord& model : models) drop_model(model);
  for (const SamplerRecord& sampler : samplers) {
    futures_.forget(sampler.id);
    std::error_code ignored;
    std::filesystem::remove_all(sampler_folder(sampler), ignored);
  }
  if (sessions > 0 || !samplers.empty() || !models.empty())
    log_info("what nobody came back for is removed", {{"sessions", sessions}, {"models", models.size()}, {"samplers", samplers.size()}});
  return sessions == kTogether || samplers.size() == kTogether || models.size() == kTogether;
}

// Nothing of it is left but what it has on disk beside models and samplers. The lock is held.
void TrainingService::remove_session(const SessionRecord& session) {
  for (auto& [path, checkpoint] : checkpoints_)
    if (checkpoint.session == session.id && !session.job.empty()) {  // it remains the job's
      checkpoint.job = session.job;
      store_->put("checkpoint", path, to_json(checkpoint).dump());
    }
  for (auto loss = custom_losses_.begin(); loss != custom_losses_.end();) {
    if (loss->second.session != session.id) {
      ++loss;
      continue;
    }
    store_->remove("custom_loss", loss->first);
    loss = custom_losses_.erase(loss);
  }
  numbers_seen_.forget("create " + session.id);
  numbers_seen_.forget("loss " + session.id);
  sessions_.erase(session.id);
}

}  // namespace lockstep
