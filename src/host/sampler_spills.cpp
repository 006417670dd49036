#include "host/sampler_spills.h"

#include "base/log.h"
#include "checkpoint/training_checkpoint.h"
#include "host/samplers.h"

namespace lockstep {
namespace {
constexpr std::int64_t kReadAtOnce = std::int64_t{64} << 20;  // of parameters' values, in one turn of the executor
}  // namespace

void SamplerSpills::spill(const OnExecutor& on, std::int64_t most_bytes) {
  if (samplers_.bytes_held() <= most_bytes) return;
  for (const std::string& id : samplers_.least_used()) {
    if (samplers_.bytes_held() <= most_bytes) return;
    spill_one(on, id);
  }
}

bool SamplerSpills::spill_oldest(const OnExecutor& on) {
  const std::int64_t bytes = samplers_.bytes_held();
  if (bytes == 0) return false;
  spill(on, commons_.intake.closed() ? 0 : bytes - 1);
  return samplers_.bytes_held() < bytes;
}

// Where another thread writes it, the executor waits for that one.
void SamplerSpills::spill_one(const OnExecutor& on, const std::string& id) {
  while (!turns_.begin(id)) turns_.wait(on, id);
  const std::shared_ptr<void> turn(nullptr, [&](void*) { turns_.end(id); });
  const std::optional<HeldWeights> held = samplers_.held(id);
  if (!held) return;
  write(id, *held, [&](const std::vector<Buffer>& parameters, std::size_t i) { return commons_.runtime().backend.stream().read(parameters[i].view()).get(); });
}

void SamplerSpills::make_room(const OnExecutor& on) {
  if (samplers_.bytes_held() > 2 * most_bytes()) spill(on, most_bytes());
  else spill_soon();
}

// The thread looks again until nobody has asked since.
void SamplerSpills::spill_soon() {
  if (samplers_.bytes_held() <= most_bytes()) return;
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
void SamplerSpills::spill_beside() {
  const std::optional<MemoryLedger::Claim> room =
      commons_.base->ledger->try_claim("writing", {}, checkpoint_write_bytes(commons_.base_manifest()) + kReadAtOnce);
  if (!room)  // in the room that the executor always has
    return run_on(*commons_.base->executor, WorkClass::training, [this](const OnExecutor& on) { spill(on, most_bytes()); }).get();
  for (const std::string& id : samplers_.least_used()) {
    if (samplers_.bytes_held() <= most_bytes()) return;
    write_beside(id);
  }
}

void SamplerSpills::write_beside(const std::string& id) {
  if (!turns_.begin(id)) return;  // another is at it
  const std::shared_ptr<void> turn(nullptr, [&](void*) { turns_.end(id); });
  const std::optional<HeldWeights> held = samplers_.held(id);
  if (!held) return;
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
    write(id, *held, values);
  } catch (...) {
    if (samplers_.contains(id)) throw;
    std::error_code ignored;  // removed meanwhile, and its folder with it
    std::filesystem::remove_all(samplers_.folder(id), ignored);
  }
}

// A snapshot that is on disk nowhere is written, a parameter at a time; then its memory goes.
void SamplerSpills::write(const std::string& id, const HeldWeights& held, const ReadValues& values) {
  const std::filesystem::path folder = samplers_.folder(id);
  if (held.record.model_path.empty() && !held.record.spilled) {
    const AdapterWeights* adapter = held.weights.adapter.get();
    const Manifest& manifest = adapter ? adapter->layout->manifest() : commons_.base_manifest();
    const std::vector<Buffer>& parameters = adapter ? adapter->parameters : held.weights.weights->parameters;
    TrainingCheckpoint rest;
    rest.profile_digest = commons_.runtime().profile.digest();
    std::filesystem::create_directories(folder);
    // Weights that a trainer moves are numbers, never packed.
    save_checkpoint(folder, manifest, rest,
                    {[](StatePart part, std::size_t) { return part == StatePart::master; }, [&](StatePart, std::size_t i) { return values(parameters, i); }},
                    {.keep_last = 1});
  }
  if (samplers_.let_go(id)) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

}  // namespace lockstep
