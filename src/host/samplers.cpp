#include "host/samplers.h"

#include <algorithm>
#include <exception>

#include "base/bounded_json.h"
#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"
#include "host/weight_cache.h"

namespace lockstep {
Samplers::Samplers(TrainingCommons& commons, Sessions& sessions, Checkpoints& checkpoints, CheckpointFiles& files, CheckpointWeights& saved, MemoryRoom& memory)
    : commons_(commons), sessions_(sessions), checkpoints_(checkpoints), files_(files), saved_(saved), memory_(memory), spills_(commons, *this) {
  std::map<std::string, Sampler> samplers;
  commons_.store->each("sampler", [&](const std::string& id, const std::string& document) {
    samplers[id].record = sampler_record(read_own_json(document));
    samplers[id].used_at = commons_.options.clock();
  });
  const auto state = state_.lock();
  state->samplers = std::move(samplers);
}

Samplers::Sampler& Samplers::State::at(const std::string& owner, const std::string& id) {
  const auto found = samplers.find(id);
  if (found == samplers.end() || found->second.record.owner != owner)
    fail(ErrorCode::not_found, "there is no sampler '{}'; snapshots without a name go when they were not sampled for long (--sampler-hours)", id);
  return found->second;
}

void Samplers::check_room(const std::string& owner) const {
  const auto state = state_.lock();
  const KeyLimit limit = commons_.limit_of(commons_.options.max_samplers);
  const auto all = static_cast<std::int64_t>(state->samplers.size());
  if (all < limit.share()) return;  // fewer are not counted one by one
  const auto own = std::count_if(state->samplers.begin(), state->samplers.end(), [&](const auto& one) { return one.second.record.owner == owner; });
  limit.check_room(all, own, "samplers", "those of old sessions go (--session-days)");
}

std::string Samplers::add(SamplerRecord record, SamplerWeights weights) {
  record.id = fmt::format("{}:sample:{}", record.session, hex64(random_bits()));
  const bool own_weights = weights.adapter || (weights.weights && weights.weights != commons_.base->weights);
  record.snapshot = own_weights && record.model_path.empty() && record.inflight_model.empty();
  writer_.change([&] {
    check_room(record.owner);
    commons_.store->put("sampler", record.id, to_json(record).dump());
    const auto state = state_.lock();
    Sampler& sampler = state->samplers[record.id];
    sampler.record = record;
    sampler.weights = std::move(weights);
    sampler.used = ++state->clock;
    sampler.used_at = commons_.options.clock();
  });
  return record.id;
}

std::string Samplers::create(const std::string& owner, const std::string& session, std::int64_t number, const std::string& base_model,
                             const std::string& path) {
  sessions_.find(owner, session);
  commons_.intake.enter().check();
  {
    const auto state = state_.lock();
    if (const auto same = state->by_number.find({session, number}); same != state->by_number.end()) return same->second;
    sessions_.check_takes_work(session);
  }
  SamplerRecord record;
  record.session = session;
  record.owner = owner;
  record.base_model = base_model;
  if (!path.empty()) {
    const CheckpointRecord from = checkpoints_.find(owner, path);
    commons_.refuse_critic(from.settings.base_model, kNothingToSample);
    record.model_path = from.path();
    record.settings = from.settings;
    record.settings.user_metadata = {};
    record.base_model = from.settings.base_model;
  } else {
    commons_.refuse_critic(base_model, kNothingToSample);
    commons_.check_base(base_model);
  }
  const std::string id = add(record, {});
  const auto state = state_.lock();
  return state->by_number.emplace(std::pair(session, number), id).first->second;
}

SamplerRecord Samplers::find(const std::string& owner, const std::string& id) const {
  const auto state = state_.lock();
  return state->at(owner, id).record;
}

bool Samplers::contains(const std::string& id) const {
  const auto state = state_.lock();
  return state->samplers.contains(id);
}

std::vector<SamplerRecord> Samplers::all(const std::string& owner, const std::string& session) const {
  const auto state = state_.lock();
  std::vector<SamplerRecord> out;
  for (const auto& [id, sampler] : state->samplers)
    if (sampler.record.owner == owner && sampler.record.session == session) out.push_back(sampler.record);
  return out;
}

std::int64_t Samplers::join(const std::string& owner, const std::string& id) {
  const auto state = state_.lock();
  return ++state->at(owner, id).joined;
}

void Samplers::use(const std::string& owner, const std::string& id) {
  const auto state = state_.lock();
  Sampler& sampler = state->at(owner, id);
  sampler.used_at = commons_.options.clock();
  sessions_.hear(owner, sampler.record.session);
}

SamplerWeights Samplers::weights(const std::string& owner, const std::string& id) {
  SamplerRecord record;
  {
    const auto state = state_.lock();
    Sampler& sampler = state->at(owner, id);
    sampler.used = ++state->clock;
    sampler.used_at = commons_.options.clock();
    record = sampler.record;
    sessions_.hear(owner, record.session);
    if (sampler.weights.weights) return sampler.weights;
    if (!record.inflight_model.empty()) {
      const auto newest = state->inflight.find(record.inflight_model);
      if (newest == state->inflight.end()) fail(ErrorCode::not_found, "the model of sampler '{}' is not there any more", id);
      return newest->second;
    }
    if (record.snapshot && !record.spilled)
      fail(ErrorCode::not_found, "the weights of sampler '{}' went down with a server that was killed; what is to outlive that is saved with a name", id);
    if (record.model_path.empty() && !record.spilled) return {commons_.base->weights};
  }
  std::optional<CheckpointRecord> from;
  if (!record.spilled) from = checkpoints_.find(owner, record.model_path);
  // In the class of training, whose files give way.
  const auto read_files = [&](const OnExecutor& on) {
    commons_.base->executor->name_piece("weights");
    return memory_.sampled(on, owner, record.settings, fmt::format("the weights of sampler '{}'", id),
                           [&] { return from ? files_.weights(on, *from) : files_.read_weights(on, folder(id), record.settings); });
  };
  // Of a snapshot all samplers share them, since reading it may pass over many deltas; where forwards are kept, of any checkpoint, since they may be the
  // trainer's own (ModelOperations::share_weights).
  const bool shared = from && (!from->snapshot.empty() || commons_.base->options.kept_forwards);
  const SamplerWeights read = shared ? saved_.of_record(owner, *from) : run_on(*commons_.base->executor, WorkClass::training, read_files).get();
  {
    const auto state = state_.lock();
    const auto found = state->samplers.find(id);                                                         // it may be removed meanwhile
    if (found != state->samplers.end() && !found->second.weights.weights) found->second.weights = read;  // another may have been faster
  }
  spills_.spill_soon();
  return read;
}

void Samplers::set_inflight(const OnExecutor&, const std::string& model, SamplerWeights weights) {
  const auto state = state_.lock();
  std::swap(state->inflight[model], weights);
}

void Samplers::drop_inflight(const OnExecutor&, const std::string& model) {
  std::map<std::string, SamplerWeights>::node_type dropped;  // goes when no lock is held
  const auto state = state_.lock();
  dropped = state->inflight.extract(model);
}

// --- memory and disk

std::int64_t Samplers::bytes_held() const {
  const auto state = state_.lock();
  std::int64_t bytes = 0;
  for (const auto& [id, sampler] : state->samplers)
    if (sampler.weights.weights && sampler.record.inflight_model.empty()) bytes += bytes_of(sampler.weights);
  return bytes;
}

std::vector<std::string> Samplers::least_used() const {
  std::vector<std::pair<std::uint64_t, std::string>> held;
  {
    const auto state = state_.lock();
    for (const auto& [id, sampler] : state->samplers)
      if (sampler.weights.weights && sampler.record.inflight_model.empty()) held.emplace_back(sampler.used, id);
  }
  std::sort(held.begin(), held.end());
  std::vector<std::string> ids;
  for (auto& [used, id] : held) ids.push_back(std::move(id));
  return ids;
}

std::optional<HeldWeights> Samplers::held(const std::string& id) const {
  const auto state = state_.lock();
  const auto found = state->samplers.find(id);
  if (found == state->samplers.end() || !found->second.weights.weights) return std::nullopt;
  return HeldWeights{found->second.weights, found->second.record};
}

bool Samplers::let_go(const std::string& id) {
  SamplerWeights dropped;  // goes when no lock is held
  bool there = true;
  writer_.change([&] {
    SamplerRecord written;
    {
      const auto state = state_.lock();
      const auto found = state->samplers.find(id);
      if (found == state->samplers.end()) return void(there = false);
      written = found->second.record;
    }
    written.spilled = written.model_path.empty();
    commons_.store->put("sampler", id, to_json(written).dump());
    const auto state = state_.lock();
    Sampler& sampler = state->samplers.at(id);
    sampler.record = std::move(written);
    std::swap(sampler.weights, dropped);
  });
  return there;
}

void Samplers::clear(const OnExecutor&) {
  const auto state = state_.lock();
  for (auto& [id, sampler] : state->samplers) sampler.weights = {};
  state->inflight.clear();
}

// --- retention

// Looks and takes them away under one lock, so that whoever comes back in between is heard. Those that the disk does not forget are there again.
std::vector<SamplerRecord> Samplers::remove_forgotten(const OnExecutor&, std::size_t most) {
  Taken taken;  // they go when no lock is held
  std::vector<SamplerRecord> gone;
  writer_.change([&] {
    take_forgotten(most, taken);
    std::exception_ptr error;
    try {
      for (const auto& one : taken) {
        commons_.store->remove("sampler", one.key());
        gone.push_back(one.mapped().record);
      }
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    const auto state = state_.lock();
    for (std::size_t i = gone.size(); i < taken.size(); ++i) state->samplers.insert(std::move(taken[i]));
    for (const SamplerRecord& one : gone) {
      std::erase_if(state->by_number, [&](const auto& numbered) { return numbered.second == one.id; });
      commons_.numbers.forget(one.id);
    }
    if (error && gone.empty()) std::rethrow_exception(error);
  });
  return gone;
}

void Samplers::take_forgotten(std::size_t most, Taken& taken) {
  const auto state = state_.lock();
  for (auto at = state->samplers.begin(); at != state->samplers.end() && taken.size() < most;) {
    const Sampler& sampler = at->second;
    const double idle = std::chrono::duration<double>(commons_.options.clock() - sampler.used_at).count();
    const bool forgotten = sessions_.is_silent(sampler.record.session, commons_.options.session_seconds);
    const auto next = std::next(at);
    if (forgotten || (sampler.record.is_snapshot() && idle >= commons_.options.sampler_seconds)) taken.push_back(state->samplers.extract(at));
    at = next;
  }
}

std::set<std::string> Samplers::sessions() const {
  const auto state = state_.lock();
  std::set<std::string> out;
  for (const auto& [id, sampler] : state->samplers) out.insert(sampler.record.session);
  return out;
}

}  // namespace lockstep
