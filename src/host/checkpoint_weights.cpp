#include "host/checkpoint_weights.h"

#include "checkpoint/adapter_folder.h"
#include "checkpoint/model_reader.h"

namespace lockstep {

CheckpointWeights::CheckpointWeights(TrainingCommons& commons, Checkpoints& checkpoints, CheckpointFiles& files, MemoryRoom& memory)
    : commons_(commons), checkpoints_(checkpoints), files_(files), memory_(memory), cache_(commons.base->executor, commons.options.sampler_bytes) {}

SamplerWeights CheckpointWeights::of_checkpoint(const std::string& owner, const std::string& path) {
  return of_record(owner, checkpoints_.find(owner, path, "sampler_weights"));
}

namespace {
// Another time, or another snapshot: it was overwritten.
std::string key_of(const CheckpointRecord& record) { return fmt::format("{} {} {}", record.path(), record.created, record.snapshot); }
}  // namespace

SamplerWeights CheckpointWeights::of_record(const std::string& owner, const CheckpointRecord& from) {
  const auto read_here = [&](const OnExecutor& on) { return read(on, owner, from); };
  if (from.kind == "external_weights") return run_on(*commons_.base->executor, WorkClass::training, read_here).get();  // an adapter by name is in memory
  return cache_.get(key_of(from), read_here);
}

SamplerWeights CheckpointWeights::of_record(const OnExecutor& on, const std::string& owner, const CheckpointRecord& from) {
  if (from.model == kNamedAdapterModel) return read(on, owner, from);
  return cache_.get(on, key_of(from), [&](const OnExecutor& here) { return read(here, owner, from); });
}

SamplerWeights CheckpointWeights::read(const OnExecutor& on, const std::string& owner, const CheckpointRecord& from) const {
  return memory_.sampled(on, owner, from.settings, fmt::format("the weights of {}", from.path()), [&] { return files_.weights(on, from); });
}

void CheckpointWeights::keep(const CheckpointRecord& saved, const SamplerWeights& weights) {
  commons_.base->executor->submit(WorkClass::training, [this, key = key_of(saved), weights, model = saved.model] {
    cache_.put(OnExecutor(*commons_.base->executor), key, weights, model);
    return false;
  });
}

void CheckpointWeights::keep(const OnExecutor& on, const CheckpointRecord& saved, const SamplerWeights& weights) {
  cache_.put(on, key_of(saved), weights, saved.model);
}

SamplerWeights CheckpointWeights::of_promoted(const PromotedModel& model) {
  return cache_.get(fmt::format("{} {} {}", model.owner, model.name, model.created), [&](const OnExecutor& on) {
    Runtime& runtime = commons_.runtime();
    const Manifest& manifest = commons_.base_manifest();
    const std::filesystem::path folder = promoted_folder(commons_, model);
    check_profile_of(commons_, model);
    return memory_.sampled(on, model.owner, model.settings, fmt::format("the promoted model '{}'", model.name), [&]() -> SamplerWeights {
      if (!model.adapter()) return {ModelReader::open(folder)->weight_set(runtime.backend, runtime.profile, 0)};
      const LoadedAdapter loaded = load_adapter_folder(folder, manifest);
      return {commons_.base->weights, make_adapter(runtime.backend, loaded.layout, loaded.images, 0)};
    });
  });
}

}  // namespace lockstep
