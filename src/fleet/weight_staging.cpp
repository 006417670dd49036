#include "fleet/weight_staging.h"

#include <algorithm>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/adapter_folder.h"
#include "fleet/publisher.h"
#include "model/compute_copy.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kPrefetchBytes = std::uint64_t{256} << 20;  // of payloads that are held before any is applied
constexpr std::size_t kMostChanges = std::size_t{1} << 20;          // that are held before they go to the device
constexpr std::int64_t kOneInRanks = 64;                            // ranks are told the changes while no more than one weight in so many changes

std::string digest_of(std::string_view bytes) { return xxh3_128_hex(bytes.data(), bytes.size()); }
std::string short_id(const std::string& id) { return id.substr(0, 12); }

// The manifest's tensor of each of the model's. Error invalid_argument for a snapshot that has others.
std::vector<const SnapshotTensor*> matched(const SnapshotChain& chain, const ModelTensors& tensors) {
  std::vector<const SnapshotTensor*> all(tensors.shapes().size());
  for (const SnapshotTensor& tensor : chain.manifest().tensors) {
    const std::size_t i = tensors.find(tensor.shape.name);
    if (i == all.size()) {
      if (tensors.is_alias(tensor.shape.name)) continue;
      fail(ErrorCode::invalid_argument, "snapshot {} has the tensor {}, which this model has not under this name", short_id(chain.id()),
           quoted_name(tensor.shape.name));
    }
    if (tensor.shape.shape != tensors.shapes()[i].shape)
      fail(ErrorCode::invalid_argument, "snapshot {} has tensor {} with shape {}, this model has {}", short_id(chain.id()), quoted_name(tensor.shape.name),
           shape_text(tensor.shape.shape), shape_text(tensors.shapes()[i].shape));
    all[i] = &tensor;
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!all[i])
      fail(ErrorCode::invalid_argument, "snapshot {} has no tensor {}, which this model needs", short_id(chain.id()), quoted_name(tensors.shapes()[i].name));
  return all;
}
}  // namespace

WeightStaging::WeightStaging(std::shared_ptr<Runtime> runtime, std::shared_ptr<Executor> executor, SwapMemory memory, std::shared_ptr<WeightPool::Part> part,
                             std::int64_t group, std::int64_t ranks)
    : runtime_(std::move(runtime)), executor_(std::move(executor)), memory_(memory), part_(std::move(part)), group_(group), ranks_(ranks) {}

StagedWeights WeightStaging::stage(const Store& store, const SnapshotChain& chain, const LiveWeights& live, std::uint64_t version,
                                   const std::function<std::string()>& base_sha256, const Report& report) const {
  const SnapshotManifest& manifest = chain.manifest();
  if (const std::string own = runtime_->profile.digest(); !manifest.profile.empty() && manifest.profile != own)
    fail(ErrorCode::invalid_argument, "snapshot {} has weights of the numerics profile {}, this replica computes under '{}' ({})", short_id(chain.id()),
         manifest.profile, runtime_->profile.name, own);
  StagedWeights staged;
  staged.version = version;
  staged.full_bytes = manifest.full_bytes();
  if (manifest.file(kAdapterConfig) && !manifest.file("config.json")) {
    stage_adapter(store, chain, live, base_sha256, staged, report);
  } else {
    stage_weights(chain, live, staged, report);
    staged.next.snapshot = chain.id();
  }
  return staged;
}

void WeightStaging::stage_adapter(const Store& store, const SnapshotChain& chain, const LiveWeights& live, const std::function<std::string()>& base_sha256,
                                  StagedWeights& staged, const Report& report) const {
  report(ReplicaStage::verifying);
  const SnapshotManifest& manifest = chain.manifest();
  const auto text = [&](const char* name) {
    const SnapshotFile* file = manifest.file(name);
    if (!file) fail(ErrorCode::corrupt_file, "snapshot {} of an adapter has no file {}", short_id(chain.id()), name);
    return read_snapshot_file(store, chain.id(), *file);
  };
  if (!live.snapshot.empty())
    fail(ErrorCode::invalid_argument, "snapshot {} is an adapter over a model folder's weights, and this replica's weights are of snapshot {}",
         short_id(chain.id()), short_id(live.snapshot));
  const auto base = read_json_or_null(text(kAdapterBaseFile));
  const auto wanted = base.is_object() ? base.value("weights_sha256", std::string()) : std::string();
  if (const std::string own = base_sha256(); wanted != own)
    fail(ErrorCode::invalid_argument, "snapshot {} is an adapter over weights with the SHA-256 {}, this replica's have {}", short_id(chain.id()), wanted, own);
  const auto layout = std::make_shared<const AdapterLayout>(adapter_layout_of(
      text(kAdapterConfig), [&](const std::string& name) { return manifest.find(name) != nullptr; }, runtime_->model->manifest()));
  const ModelTensors tensors(layout->manifest());
  const std::vector<const SnapshotTensor*> wanted_tensors = matched(chain, tensors);
  report(ReplicaStage::downloading);
  const auto before = [&](std::size_t i) {
    const auto found = live.adapter_bytes.find(tensors.shapes()[i].name);
    return found == live.adapter_bytes.end() ? std::string() : found->second;
  };
  std::uint64_t held = 0;
  for (std::size_t i = 0; i < wanted_tensors.size() && held < kPrefetchBytes; ++i) held += chain.prefetch(*wanted_tensors[i], digest_of(before(i)));
  report(ReplicaStage::applying);
  WeightImages images;
  for (const Parameter& p : layout->manifest().parameters()) images.emplace_back(static_cast<std::size_t>(p.size()), 0.0f);
  for (std::size_t i = 0; i < wanted_tensors.size(); ++i) {
    std::string old = before(i), bytes = chain.tensor(*wanted_tensors[i], old);
    staged.changed_tensors += bytes != old;
    tensors.put(i, bytes, wanted_tensors[i]->shape.type, images);
    staged.next.adapter_bytes[tensors.shapes()[i].name] = std::move(bytes);
  }
  staged.next.weights = live.weights;
  staged.next.digests = live.digests;
  staged.next.adapter = executor_->run(WorkClass::training, [&] { return make_adapter(runtime_->backend, layout, images, staged.version); }).get();
}

void WeightStaging::stage_weights(const SnapshotChain& chain, const LiveWeights& live, StagedWeights& staged, const Report& report) const {
  const ModelTensors tensors(runtime_->model->manifest(), runtime_->profile);
  const std::vector<const SnapshotTensor*> wanted = matched(chain, tensors);
  std::vector<std::string> known(wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (const auto found = live.digests.find(tensors.shapes()[i].name); found != live.digests.end()) known[i] = found->second;
  const auto differs = [&](std::size_t i) { return known[i] != wanted[i]->result; };
  report(ReplicaStage::downloading);
  std::uint64_t held = 0;
  for (std::size_t i = 0; i < wanted.size() && held < kPrefetchBytes; ++i)
    if (differs(i) && !known[i].empty()) held += chain.prefetch(*wanted[i], known[i]);

  auto next = std::make_shared<WeightSet>();
  next->version = staged.version;
  next->parameters = live.weights->parameters;
  const bool in_place = memory_ == SwapMemory::single;
  if (ranks_ > 1) staged.for_ranks = std::make_shared<WeightChanges>(WeightChanges{.from = live.weights->identity, .in_place = in_place, .parameters = {}});
  for (const ModelTensors::Group& group : tensors.groups(differs, group_)) {
    report(ReplicaStage::verifying);
    const auto bits = executor_->run(WorkClass::training, [&] { return read_parameters(runtime_->backend, live.weights->parameters, group.parameters); }).get();
    std::set<ParameterId> changed;
    std::vector<Changes> waiting;  // for the device
    std::size_t held_changes = 0;
    const auto apply = [&] {
      if (waiting.empty()) return;
      report(ReplicaStage::applying);
      executor_
          ->run(WorkClass::training,
                [&] {
                  for (const Changes& some : waiting)
                    for (const auto& [id, changes] : some) {
                      Buffer& own = next->parameters[static_cast<std::size_t>(id)];
                      if (changed.insert(id).second) own = copy_of(id, own);
                      write_changes(runtime_->backend, own, changes);
                    }
                })
          .get();
      waiting.clear();
      held_changes = 0;
    };
    for (const std::size_t i : group.tensors) {
      const SafetensorsType type = wanted[i]->shape.type;
      const std::string before = tensors.bytes(i, bits, type);
      const std::string now = chain.tensor(*wanted[i], before);
      if (now == before) continue;
      ++staged.changed_tensors;
      if (in_place) {
        EncodedTensor there = encode_tensor(type, before, now), back = encode_tensor(type, now, before);
        if (there.codec == TensorCodec::full) there.payload = now;
        if (back.codec == TensorCodec::full) back.payload = before;
        staged.changes.push_back({i, type, digest_of(before), wanted[i]->result, there.codec, back.codec, std::move(there.payload), std::move(back.payload)});
        continue;
      }
      tensors.each_change(i, before, now, type, kMostChanges, [&](Changes some) {
        tell_ranks(staged, some);
        for (const auto& [id, changes] : some) held_changes += static_cast<std::size_t>(changes.count());
        waiting.push_back(std::move(some));
        if (held_changes >= kMostChanges) apply();
      });
    }
    apply();
    if (!part_ || changed.empty()) continue;
    executor_
        ->run(WorkClass::training,
              [&] {
                for (const ParameterId id : changed) {
                  Buffer& own = next->parameters[static_cast<std::size_t>(id)];
                  own = part_->keep(runtime_->backend, std::move(own));
                }
              })
        .get();
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) staged.next.digests[tensors.shapes()[i].name] = wanted[i]->result;
  if (in_place) return;
  next->changes = staged.for_ranks;
  staged.next.weights = std::move(next);
}

Buffer WeightStaging::copy_of(ParameterId id, const Buffer& buffer) const {
  Buffer copy = allocate_compute_copy(runtime_->backend, runtime_->model->manifest().parameter(id), runtime_->profile);
  runtime_->backend.stream().copy(copy.view(), buffer.view());
  return copy;
}

void WeightStaging::tell_ranks(StagedWeights& staged, const Changes& changes) const {
  if (!staged.for_ranks) return;
  for (const auto& [id, some] : changes) {
    ParameterChanges& all = staged.for_ranks->parameters[id];
    some.each([&](std::int64_t offset, std::uint32_t bits) { all.add(offset, bits); });
  }
  if (staged.for_ranks->count() > trained_size(runtime_->model->manifest()) / kOneInRanks) staged.for_ranks.reset();
}

std::shared_ptr<const WeightSet> WeightStaging::write(StagedWeights& staged, const LiveWeights& live) const {
  const ModelTensors tensors(runtime_->model->manifest(), runtime_->profile);
  std::map<std::size_t, const StagedWeights::Change*> by_tensor;
  for (const StagedWeights::Change& change : staged.changes) by_tensor[change.tensor] = &change;
  const auto groups = tensors.groups([&](std::size_t i) { return by_tensor.contains(i); }, group_);
  const auto bits_of = [&](const ModelTensors::Group& group) { return read_parameters(runtime_->backend, live.weights->parameters, group.parameters); };
  const auto check = [&](const StagedWeights::Change& change, std::string_view bytes, const std::string& expected) {
    if (const std::string digest = digest_of(bytes); digest != expected)
      fail(ErrorCode::corrupt_file, "tensor {} of the live weights has the digest {}, expected {}; they stay as they are",
           quoted_name(tensors.shapes()[change.tensor].name), digest, expected);
  };
  for (const ModelTensors::Group& group : groups) {
    const auto bits = bits_of(group);
    for (const std::size_t i : group.tensors) check(*by_tensor[i], tensors.bytes(i, bits, by_tensor[i]->type), by_tensor[i]->before);
  }
  auto next = std::make_shared<WeightSet>();
  next->version = staged.version;
  next->parameters = live.weights->parameters;
  const auto write_all = [&](const Changes& some, std::vector<Buffer>& to) {
    for (const auto& [id, changes] : some) {
      const Buffer& own = live.weights->parameters[static_cast<std::size_t>(id)];
      Buffer& now = to[static_cast<std::size_t>(id)];
      if (part_ && now.view().address == own.view().address && !part_->make_private(own)) now = copy_of(id, own);  // others have it
      write_changes(runtime_->backend, now, changes);
    }
  };
  const auto change = [&](const ModelTensors::Group& group) {
    const auto bits = bits_of(group);
    for (const std::size_t i : group.tensors) {
      const StagedWeights::Change& one = *by_tensor[i];
      const std::string before = tensors.bytes(i, bits, one.type);
      std::string now = before;
      decode_tensor(one.codec, one.type, one.payload, before, now);
      check(one, now, one.after);
      try {
        tensors.each_change(i, before, now, one.type, kMostChanges, [&](const Changes& some) {
          tell_ranks(staged, some);
          write_all(some, next->parameters);
        });
      } catch (...) {  // it was written in part, which no payload undoes
        std::vector<Buffer> own = live.weights->parameters;
        tensors.each_change(i, tensors.bytes(i, bits_of(group), one.type), before, one.type, kMostChanges, [&](const Changes& some) { write_all(some, own); });
        throw;
      }
    }
  };
  // Of the live weights' own memory, as far as a group was written. What others have was copied, and is as it was.
  const auto undo = [&](const ModelTensors::Group& group) {
    std::vector<Buffer> own = live.weights->parameters;
    const auto bits = bits_of(group);
    for (const std::size_t i : group.tensors) {
      const StagedWeights::Change& one = *by_tensor[i];
      const std::string now = tensors.bytes(i, bits, one.type);
      if (digest_of(now) == one.before) continue;
      std::string before = now;
      decode_tensor(one.undo_codec, one.type, one.undo, now, before);
      check(one, before, one.before);
      tensors.each_change(i, now, before, one.type, kMostChanges, [&](const Changes& some) { write_all(some, own); });
    }
  };
  std::size_t group = 0;
  try {
    for (; group < groups.size(); ++group) change(groups[group]);
  } catch (...) {
    for (++group; group > 0; --group) undo(groups[group - 1]);
    throw;
  }
  next->changes = staged.for_ranks;
  return next;
}

}  // namespace lockstep
