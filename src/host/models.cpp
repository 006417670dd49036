#include "host/models.h"

#include <algorithm>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/give_way.h"

namespace lockstep {

Models::Models(TrainingCommons& commons)
    : commons_(commons), acknowledged_(commons.options.state / "numbers"), state_(std::in_place, commons.limit_of(commons.options.max_unmade)) {
  std::map<std::string, std::shared_ptr<HostedModel>> models;
  commons_.store->each("model", [&](const std::string& id, const std::string& document) {
    const auto model = std::make_shared<HostedModel>(model_record(read_own_json(document)));
    const auto its = model->state.lock();
    its->acknowledged = acknowledged_.last(folder_of_id(id));  // what was not done of these went down with the server
    its->next = std::max(its->record.next_sequence, its->acknowledged + 1);
    its->record.open_gradients = false;  // they went down with the server, and the next step says so
    its->gradients_gone = acknowledged_.has_gradients(folder_of_id(id));
    if (its->record.changed)
      its->lost = fmt::format("the server ended before it could write down model '{}' ({} optimizer steps); load_state of a checkpoint goes on from there", id,
                              its->record.steps);
    models[id] = model;
  });
  const auto state = state_.lock();
  state->models = std::move(models);
}

std::filesystem::path Models::folder(const HostedModel& model) const { return commons_.options.state / "living" / folder_of_id(model.id); }

std::shared_ptr<HostedModel> Models::at(const std::string& owner, const std::string& id) const {
  const auto state = state_.lock();
  const auto found = state->models.find(id);
  if (const std::string* why = found == state->models.end() ? state->unmade.find(owner, id, 0) : nullptr) fail(ErrorCode::not_found, "{}", *why);
  if (found == state->models.end() || found->second->owner != owner) fail(ErrorCode::not_found, "there is no model '{}'", id);
  return found->second;
}

std::shared_ptr<HostedModel> Models::any(const std::string& id) const {
  const auto state = state_.lock();
  const auto found = state->models.find(id);
  return found == state->models.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<HostedModel>> Models::every() const {
  const auto state = state_.lock();
  std::vector<std::shared_ptr<HostedModel>> out;
  out.reserve(state->models.size());
  for (const auto& [id, model] : state->models) out.push_back(model);
  return out;
}

std::vector<std::shared_ptr<HostedModel>> Models::of_session(const std::string& session) const {
  const auto state = state_.lock();
  std::vector<std::shared_ptr<HostedModel>> out;
  for (const auto& [id, model] : state->models)
    if (model->session == session) out.push_back(model);
  return out;
}

std::vector<ModelRecord> Models::all(const std::string& owner) const {
  std::vector<ModelRecord> out;
  for (const std::shared_ptr<HostedModel>& model : every())
    if (model->owner == owner) out.push_back(model->record());
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.created > b.created; });
  return out;
}

void Models::check_room(const State& state, const std::string& owner) const {
  std::int64_t all = 0, own = 0;
  for (const auto& [id, model] : state.models) ++all, own += model->owner == owner;
  commons_.limit_of(commons_.options.max_kept_models).check_room(all, own, "models", "unload some");
}

void Models::check_room(const std::string& owner) const {
  const auto state = state_.lock();
  check_room(*state, owner);
}

void Models::add(const std::shared_ptr<HostedModel>& model) {
  const auto state = state_.lock();
  check_room(*state, model->owner);
  if (!state->models.emplace(model->id, model).second) fail(ErrorCode::already_exists, "model '{}' exists already", model->id);
  state->unmade.forget(model->id);
}

void Models::store(const ModelRecord& record) {
  give_way_during([&] { commons_.store->put("model", record.id, to_json(record).dump()); });
}

void Models::remove(const HostedModel& model) {
  {
    const auto state = state_.lock();
    state->models.erase(model.id);
    commons_.numbers.forget(model.id);
  }
  commons_.store->remove("model", model.id);
  acknowledged_.forget(folder_of_id(model.id));
  std::error_code ignored;
  std::filesystem::remove_all(folder(model), ignored);
}

void Models::remove_unmade(const HostedModel& model, const std::string& why) {
  const auto state = state_.lock();
  acknowledged_.forget(folder_of_id(model.id));
  state->unmade.put(model.owner, model.id, 0, why);
  state->models.erase(model.id);
}

void Models::acknowledge(const HostedModel& model, ModelState& state, std::int64_t sequence) {
  if (sequence <= state.acknowledged) return;
  acknowledged_.note(folder_of_id(model.id), sequence);
  state.acknowledged = sequence;
}

void Models::each_metadata(const MetadataRoom::Count& count) const {
  const auto state = state_.lock();
  for (const auto& [id, model] : state->models) count(model->owner, model->metadata_bytes);
}

}  // namespace lockstep
