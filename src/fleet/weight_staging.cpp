#include "fleet/weight_staging.h"

#include <algorithm>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/adapter_folder.h"
#include "fleet/publisher.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kPrefetchBytes = std::uint64_t{256} << 20;  // of payloads that are held before any is applied

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
                             std::int64_t group)
    : runtime_(std::move(runtime)), executor_(std::move(executor)), memory_(memory), part_(std::move(part)), group_(group) {}

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
  for (const ModelTensors::Group& group : tensors.groups(differs, group_)) {
    report(ReplicaStage::verifying);
    WeightImages images =
        executor_->run(WorkClass::training, [&] { return read_parameters(runtime_->backend, live.weights->parameters, group.parameters); }).get();
    std::set<ParameterId> changed;
    for (const std::size_t i : group.tensors) {
      const SafetensorsType type = wanted[i]->shape.type;
      const std::string before = tensors.bytes(i, images, type);
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
      tensors.put(i, now, type, images);
      changed.insert(tensors.parameters(i).begin(), tensors.parameters(i).end());
    }
    if (changed.empty()) continue;
    report(ReplicaStage::applying);
    executor_
        ->run(WorkClass::training,
              [&] {
                for (const ParameterId id : changed) {
                  Buffer made = compute_copy(id, images);
                  next->parameters[static_cast<std::size_t>(id)] = part_ ? part_->keep(runtime_->backend, std::move(made)) : std::move(made);
                }
              })
        .get();
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) staged.next.digests[tensors.shapes()[i].name] = wanted[i]->result;
  if (!in_place) staged.next.weights = std::move(next);
}

Buffer WeightStaging::compute_copy(ParameterId id, const WeightImages& images) const {
  return make_compute_copy(runtime_->backend, runtime_->model->manifest().parameter(id), runtime_->profile, images[static_cast<std::size_t>(id)]);
}

std::shared_ptr<const WeightSet> WeightStaging::write(const StagedWeights& staged, const LiveWeights& live) const {
  const ModelTensors tensors(runtime_->model->manifest(), runtime_->profile);
  std::map<std::size_t, const StagedWeights::Change*> by_tensor;
  for (const StagedWeights::Change& change : staged.changes) by_tensor[change.tensor] = &change;
  const auto groups = tensors.groups([&](std::size_t i) { return by_tensor.contains(i); }, group_);
  const auto images_of = [&](const ModelTensors::Group& group) { return read_parameters(runtime_->backend, live.weights->parameters, group.parameters); };
  const auto check = [&](const StagedWeights::Change& change, std::string_view bytes, const std::string& expected) {
    if (const std::string digest = digest_of(bytes); digest != expected)
      fail(ErrorCode::corrupt_file, "tensor {} of the live weights has the digest {}, expected {}; they stay as they are",
           quoted_name(tensors.shapes()[change.tensor].name), digest, expected);
  };
  for (const ModelTensors::Group& group : groups) {
    const WeightImages images = images_of(group);
    for (const std::size_t i : group.tensors) check(*by_tensor[i], tensors.bytes(i, images, by_tensor[i]->type), by_tensor[i]->before);
  }
  auto next = std::make_shared<WeightSet>();
  next->version = staged.version;
  next->parameters = live.weights->parameters;
  const auto change = [&](const ModelTensors::Group& group, bool back) {
    WeightImages images = images_of(group);
    for (const std::size_t i : group.tensors) {
      const StagedWeights::Change& one = *by_tensor[i];
      std::string bytes = tensors.bytes(i, images, one.type);
      decode_tensor(back ? one.undo_codec : one.codec, one.type, back ? one.undo : one.payload, bytes, bytes);
      check(one, bytes, back ? one.before : one.after);
      tensors.put(i, bytes, one.type, images);
    }
    for (const ParameterId id : group.parameters) {
      const Buffer& own = live.weights->parameters[static_cast<std::size_t>(id)];
      Buffer& now = next->parameters[static_cast<std::size_t>(id)];
      if (!back && part_ && !part_->make_private(own)) now = compute_copy(id, images);  // others have it
      else if (now.view().address == own.view().address) runtime_->backend.stream().write(own.view(), images[static_cast<std::size_t>(id)]);
    }
  };
  std::size_t done = 0;
  try {
    for (; done < groups.size(); ++done) change(groups[done], false);
  } catch (...) {
    while (done-- > 0) change(groups[done], true);
    throw;
  }
  return next;
}

}  // namespace lockstep
