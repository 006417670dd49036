#include "host/retention.h"

#include <algorithm>

#include "base/log.h"

namespace lockstep {

namespace {
constexpr std::size_t kTogether = 8;  // removed at once: others' work goes between
}  // namespace

void Retention::rest_silent() {
  commons_.queue->submit("resting", {}, [this](const OnExecutor& on) { return to_.resting.rest_one_silent(on); });
}

void Retention::look() {
  constexpr double kMostSeconds = 60;
  const Intake::Entry entry = commons_.intake.enter();
  const auto looked = looked_.try_lock();
  if (!looked || !entry.is_open()) return;
  const auto due = [now = commons_.options.clock()](Clock::time_point& last, double seconds) {
    if (std::chrono::duration<double>(now - last).count() < seconds) return false;
    last = now;
    return true;
  };
  const TrainingServiceOptions& options = commons_.options;
  if (due((*looked)->for_silent, std::min(kMostSeconds, options.session_idle_seconds / 4))) rest_silent();
  if (!due((*looked)->swept, std::min({kMostSeconds, options.session_seconds / 4, options.sampler_seconds / 4}))) return;
  commons_.queue->submit("retention", {}, [this](const OnExecutor& on) {
    try {
      return remove_forgotten(on);
    } catch (const std::exception& e) {  // the server stops, or its disk does not take it
      log_warning("what nobody came back for could not be removed", {{"reason", e.what()}});
      return false;
    }
  });
}

// Whoever makes something in a session is heard in it first, and so holds the session: begin_removal and that hearing are under one lock.
bool Retention::remove_forgotten(const OnExecutor& on) {
  if (commons_.intake.closed()) return false;
  const double seconds = commons_.options.session_seconds;
  const std::vector<SamplerRecord> samplers = to_.samplers.remove_forgotten(on, kTogether);
  // A session goes when its models are gone: a server that is killed between the two finds it again.
  std::set<std::string> occupied = to_.samplers.sessions();
  std::vector<std::shared_ptr<HostedModel>> models;
  std::set<std::string>& unloading = unloading_.at(on);
  std::erase_if(unloading, [&](const std::string& id) { return !to_.models.any(id); });
  for (const std::shared_ptr<HostedModel>& model : to_.models.every()) {
    if (!to_.sessions.is_silent(model->session, seconds)) continue;
    occupied.insert(model->session);
    if (models.size() < kTogether && unloading.insert(model->id).second) models.push_back(model);
  }
  std::size_t sessions = 0;
  for (const SessionRecord& session : to_.sessions.silent(seconds)) {
    if (sessions == kTogether) break;
    if (occupied.contains(session.id) || !to_.sessions.begin_removal(session.id, seconds)) continue;
    remove_session(session);
    ++sessions;
  }
  for (const std::shared_ptr<HostedModel>& model : models) to_.model_life.drop(model->owner, model->id);
  for (const SamplerRecord& sampler : samplers) {
    commons_.futures.forget(sampler.id);
    std::error_code ignored;
    std::filesystem::remove_all(commons_.options.state / "samplers" / folder_of_id(sampler.id), ignored);
  }
  if (sessions > 0 || !samplers.empty() || !models.empty())
    log_info("what nobody came back for is removed", {{"sessions", sessions}, {"models", models.size()}, {"samplers", samplers.size()}});
  return sessions == kTogether || samplers.size() == kTogether || models.size() == kTogether;
}

// Nothing of it is left but what it has on disk beside models and samplers.
void Retention::remove_session(const SessionRecord& session) {
  to_.checkpoints.store_job(session);
  to_.custom_losses.remove_of(session.id);
  commons_.numbers.forget("create " + session.id);
  commons_.numbers.forget("loss " + session.id);
  to_.sessions.erase(session.id);
}

}  // namespace lockstep
