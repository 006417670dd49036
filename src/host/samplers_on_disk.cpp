// Weights of samplers between memory and disk.
#include <algorithm>

#include "base/log.h"
#include "checkpoint/training_checkpoint.h"
#include "host/samplers.h"
#include "host/weight_cache.h"

namespace lockstep {
namespace {
constexpr std::int64_t kReadAtOnce = std::int64_t{64} << 20;  // of parameters' values, in one turn of the executor
}  // namespace

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
  if (one)
    write(*one, [&](const std::vector<Buffer>& parameters, std::size_t i) { return commons_.runtime().backend.stream().read(parameters[i].view()).get(); });
}

void Samplers::make_room(const OnExecutor& on) {
  if (bytes_held() > 2 * most_bytes()) spill(on);
  else spill_soon();
}

// The thread looks again until nobody has asked since.
void Samplers::spill_soon() {
  if (bytes_held() <= most_bytes()) return;
  const auto beside = beside_.lock();
  beside->wanted = true;
  if (std::exchange(beside->running, true)) return;
  beside->thread = std::async(std::launch::async, [this] {
    while (true) {
      {
        const auto own = beside_.lock();
        if (!std::exchange(own->wanted, false)) return void(own->running = false);
      }
      try {
        spill_beside();
      } catch (const std::exception& e) {  // they stay in memory; the server stops, or its disk does not take it
        log_warning("weights of samplers could not be put on disk", {{"reason", e.what()}});
      }
    }
  });
}

// The disk is waited for here, and the executor copies a parameter at a time, or all of them where they are little.
void Samplers::spill_beside() {
  const std::optional<MemoryLedger::Claim> room =
      commons_.base->ledger->try_claim("writing", {}, checkpoint_write_bytes(commons_.base_manifest()) + kReadAtOnce);
  if (!room)  // in the room that the executor always has
    return run_on(*commons_.base->executor, WorkClass::training, [this](const OnExecutor& on) { spill(on); }).get();
  for (const std::string& id : least_used()) {
    if (bytes_held() <= most_bytes()) return;
    write_beside(id);
  }
}

void Samplers::write_beside(const std::string& id) {
  if (!turns_.begin(id)) return;  // another is at it
  const std::shared_ptr<void> turn(nullptr, [&](void*) { turns_.end(id); });
  const std::optional<Held> one = held(id);
  if (!one) return;
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
    save_checkpoint(folder(record.id), manifest, rest,
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

}  // namespace lockstep
