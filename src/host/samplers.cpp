#include "host/samplers.h"

#include <algorithm>
#include <exception>

#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/training_checkpoint.h"
#include "host/weight_cache.h"

namespace lockstep {
namespace {
constexpr std::int64_t kReadAtOnce = std::int64_t{64} << 20;  // of parameters' values, in one turn of the executor
}  // namespace

Samplers::Samplers(TrainingCommons& commons, Sessions& sessions, Checkpoints& checkpoints, CheckpointFiles& files, MemoryRoom& memory)
    : commons_(commons), sessions_(sessions), checkpoints_(checkpoints), files_(files), memory_(memory), turns_(commons.base->executor) {
  std::map<std::string, Sampler> samplers;
  commons_.store->each("sampler",
                       [&](const std::string& id, const std::string& document) { samplers[id].record = sampler_record(TrainingJson::parse(document)); });
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
  sampler.used_at = Clock::now();
  sessions_.hear(owner, sampler.record.session);
}

SamplerWeights Samplers::weights(const std::string& owner, const std::string& id) {
  SamplerRecord record;
  {
    const auto state = state_.lock();
    Sampler& sampler = state->at(owner, id);
    sampler.used = ++state->clock;
    sampler.used_at = Clock::now();
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
  const SamplerWeights read = run_on(*commons_.base->executor, WorkClass::training, [&](const OnExecutor& on) {
                                commons_.base->executor->tell("weights");
                                return memory_.sampled(on, owner, record.settings, fmt::format("the weights of sampler '{}'", id),
                                                       [&] { return from ? files_.weights(on, *from) : files_.read_weights(on, folder(id), record.settings); });
                              }).get();
  {
    const auto state = state_.lock();
    const auto found = state->samplers.find(id);                                                         // it may be removed meanwhile
    if (found != state->samplers.end() && !found->second.weights.weights) found->second.weights = read;  // another may have been faster
  }
  spill_here();
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

std::optional<Samplers::Held> Samplers::held(const std::string& id) const {
  const auto state = state_.lock();
  const auto found = state->samplers.find(id);
  if (found == state->samplers.end() || !found->second.weights.weights) return std::nullopt;
  return Held{found->second.weights, found->second.record};
}

void Samplers::spill(const OnExecutor& on, std::int64_t most_bytes) {
  if (bytes_held() <= most_bytes) return;
  for (const std::string& id : least_used()) {
    if (bytes_held() <= most_bytes) return;
    write_on(on, id);
  }
}

bool Samplers::spill_oldest(const OnExecutor& on) {
  const std::int64_t bytes = bytes_held();
  if (bytes == 0) return false;
  spill(on, commons_.intake.closed() ? 0 : bytes - 1);
  return bytes_held() < bytes;
}

void Samplers::spill_one(const OnExecutor& on, const std::string& id) { write_on(on, id); }

// Where another thread writes it, the executor waits for that one.
void Samplers::write_on(const OnExecutor& on, const std::string& id) {
  while (!turns_.begin(id)) turns_.wait(on, id);
  const std::shared_ptr<void> turn(nullptr, [&](void*) { turns_.end(id); });
  const std::optional<Held> one = held(id);
  if (one) write(*one, [&](const std::vector<Buffer>& parameters, std::size_t i) { return commons_.runtime().backend.stream().read(parameters[i].view()).get(); });
}

// The disk is waited for here, and the executor copies a parameter at a time, or all of them where they are little. One thread does it for all: those who
// come meanwhile go on, and it looks again.
void Samplers::spill_here() {
  bool again = true;
  while (std::exchange(again, false)) {
    const std::unique_lock here(here_, std::try_to_lock);
    if (!here || bytes_held() <= most_bytes()) return;
    const std::optional<MemoryLedger::Claim> room =
        commons_.base->ledger->try_claim("writing", {}, checkpoint_write_bytes(commons_.base_manifest()) + kReadAtOnce);
    if (!room)  // in the room that the executor always has
      return run_on(*commons_.base->executor, WorkClass::training, [this](const OnExecutor& on) { spill(on); }).get();
    for (const std::string& id : least_used()) {
      if (bytes_held() <= most_bytes()) break;
      again = write_here(id) || again;
    }
  }
}

// False: it is another's, or gone.
bool Samplers::write_here(const std::string& id) {
  if (!turns_.begin(id)) return false;
  const std::shared_ptr<void> turn(nullptr, [&](void*) { turns_.end(id); });
  const std::optional<Held> one = held(id);
  if (!one) return false;
  Stream& stream = commons_.runtime().backend.stream();
  WeightImages read;
  const auto values = [&](const std::vector<Buffer>& parameters, std::size_t i) {
    if (read.empty()) read.resize(parameters.size());
    if (read[i].empty()) {
      std::int64_t elements = 0;
      for (const Buffer& one : parameters) elements += one.view().size();
      const bool all = elements * static_cast<std::int64_t>(sizeof(float)) <= kReadAtOnce;
      turns_.run([&] {
        for (std::size_t k = all ? 0 : i; k < (all ? parameters.size() : i + 1); ++k) read[k] = stream.read(parameters[k].view()).get();
      });
    }
    return std::move(read[i]);
  };
  try {
    write(*one, values);
  } catch (...) {
    if (contains(id)) throw;
    std::error_code ignored;  // removed meanwhile, and its folder with it
    std::filesystem::remove_all(folder(id), ignored);
  }
  return true;
}

// A snapshot that is on disk nowhere is written, a parameter at a time; then its memory goes.
void Samplers::write(const Held& one, const ReadValues& values) {
  const SamplerRecord& record = one.record;
  if (record.model_path.empty() && !record.spilled) {
    const AdapterWeights* adapter = one.weights.adapter.get();
    const Manifest& manifest = adapter ? adapter->layout->manifest() : commons_.base_manifest();
    const std::vector<Buffer>& parameters = adapter ? adapter->parameters : one.weights.weights->parameters;
    TrainingCheckpoint rest;
    rest.profile_digest = commons_.runtime().profile.digest();
    std::filesystem::create_directories(folder(record.id));
    // Weights that a trainer moves are numbers, never packed.
    save_checkpoint(
        folder(record.id), manifest, rest,
        {[](StatePart part, std::size_t) { return part == StatePart::master; }, [&](StatePart, std::size_t i) { return values(parameters, i); }},
        {.keep_last = 1});
  }
  bool gone = false;
  SamplerWeights dropped;  // goes when no lock is held
  writer_.change([&] {
    SamplerRecord written;
    {
      const auto state = state_.lock();
      const auto found = state->samplers.find(record.id);
      if (found == state->samplers.end()) return void(gone = true);  // removed meanwhile
      written = found->second.record;
    }
    written.spilled = written.model_path.empty();
    commons_.store->put("sampler", record.id, to_json(written).dump());
    const auto state = state_.lock();
    Sampler& sampler = state->samplers.at(record.id);
    sampler.record = std::move(written);
    std::swap(sampler.weights, dropped);
  });
  if (!gone) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder(record.id), ignored);
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
    const double idle = std::chrono::duration<double>(Clock::now() - sampler.used_at).count();
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
