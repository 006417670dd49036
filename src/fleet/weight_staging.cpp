#include "fleet/weight_staging.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <set>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/running_digest.h"
#include "checkpoint/adapter_folder.h"
#include "fleet/publisher.h"
#include "fleet/staged_tensor.h"
#include "model/compute_copy.h"
#include "tensor/copies.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kPrefetchBytes = std::uint64_t{256} << 20;  // of payloads that are held before any is applied
constexpr std::uint64_t kPayloadBytes = std::uint64_t{64} << 20;    // of payloads that are applied in one pass
constexpr std::int64_t kCopiedAtOnce = std::int64_t{1} << 18;       // elements
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
                             std::int64_t ranks)
    : runtime_(std::move(runtime)), executor_(std::move(executor)), memory_(memory), part_(std::move(part)), ranks_(ranks) {}

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

  // An update is made from what the live weights have, whatever was said of them.
  std::vector<std::string> digests(wanted.size());
  {
    std::map<std::size_t, RunningDigest> running;
    std::vector<PassedTensor> list;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (differs(i)) list.push_back(digested(i, wanted[i]->shape.type, running[i]));
    pass(tensors, *live.weights, std::move(list), [&] { report(ReplicaStage::verifying); });
    for (const auto& [i, digest] : running) digests[i] = digest.hex();
  }
  auto next = std::make_shared<WeightSet>();
  next->version = staged.version;
  next->parameters = live.weights->parameters;
  const bool in_place = memory_ == SwapMemory::single;
  if (ranks_ > 1) staged.for_ranks = std::make_shared<WeightChanges>(WeightChanges{.from = live.weights->identity, .in_place = in_place, .parameters = {}});
  std::mutex mutex;
  std::vector<Changes> waiting;  // for the device
  std::set<ParameterId> changed;
  const auto take = [&](Changes some) {
    const std::lock_guard lock(mutex);
    waiting.push_back(std::move(some));
  };
  const auto apply = [&] {
    for (const Changes& some : waiting) {
      tell_ranks(staged, some);
      for (const auto& [id, changes] : some) {
        Buffer& own = next->parameters[static_cast<std::size_t>(id)];
        if (changed.insert(id).second) own = copy_of(id, own);
        write_changes(runtime_->backend, own, changes);
      }
    }
    waiting.clear();
  };
  for (std::size_t i = 0; i < wanted.size();) {
    // As many tensors at once as their payloads may be held.
    std::list<StagedTensor> some;
    std::vector<PassedTensor> list;
    for (std::uint64_t payloads = 0; i < wanted.size() && payloads < kPayloadBytes; ++i) {
      if (!differs(i) || digests[i] == wanted[i]->result) continue;
      auto update = chain.update(*wanted[i], digests[i]);
      payloads += update->payload_bytes();
      StagedWeights::Change change;
      change.tensor = i, change.type = wanted[i]->shape.type, change.before = digests[i], change.after = wanted[i]->result;
      some.emplace_back(tensors, std::move(change), std::move(update));
      list.push_back(in_place ? some.back().passed({}) : some.back().passed(take));
    }
    staged.changed_tensors += some.size();
    pass(
        tensors, *live.weights, std::move(list), [&] { report(ReplicaStage::applying); }, apply);
    for (StagedTensor& one : some) {
      if (!in_place) continue;
      if (one.change().many) make_payloads(tensors, chain, *wanted[one.change().tensor], *live.weights, one.change());
      staged.changes.push_back(std::move(one.change()));
    }
  }
  for (const ParameterId id : changed) {
    if (!part_) break;
    Buffer& own = next->parameters[static_cast<std::size_t>(id)];
    executor_->run(WorkClass::training, [&] { own = part_->keep(runtime_->backend, std::move(own)); }).get();
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) staged.next.digests[tensors.shapes()[i].name] = wanted[i]->result;
  if (in_place) return;
  next->changes = staged.for_ranks;
  staged.next.weights = std::move(next);
}

// Payloads need less memory than the places of many elements, but the tensor whole, there and back.
void WeightStaging::make_payloads(const ModelTensors& tensors, const SnapshotChain& chain, const SnapshotTensor& wanted, const WeightSet& weights,
                                  StagedWeights::Change& change) const {
  std::string before = whole_tensor(*executor_, tensors, weights, change.tensor, change.type), now = chain.tensor(wanted, before);
  EncodedTensor there = encode_tensor(change.type, before, now), back = encode_tensor(change.type, now, before);
  change.codec = there.codec, change.undo_codec = back.codec;
  change.payload = there.codec == TensorCodec::full ? std::move(now) : std::move(there.payload);
  change.undo = back.codec == TensorCodec::full ? std::move(before) : std::move(back.payload);
}

void WeightStaging::pass(const ModelTensors& tensors, const WeightSet& weights, std::vector<PassedTensor> list, const std::function<void()>& before_turn,
                         const std::function<void()>& after) const {
  if (list.empty()) return;
  TensorPass pass(*runtime_, tensors, weights.parameters, std::move(list));
  const auto turn = [&](const OnExecutor& on) {
    const bool more = pass.turn(on);
    if (after) after();
    return more;
  };
  do before_turn();
  while (run_on(*executor_, WorkClass::training, turn).get());
}

template <class Where>
std::string WeightStaging::whole_tensor(Where& where, const ModelTensors& tensors, const WeightSet& weights, std::size_t i, SafetensorsType type) const {
  std::string bytes(static_cast<std::size_t>(tensors.shapes()[i].bytes / safetensors_type_bytes(tensors.shapes()[i].type) * safetensors_type_bytes(type)),
                    '\0');
  const auto read = [&](std::int64_t first, const char* words, std::size_t size) {
    std::memcpy(bytes.data() + first * safetensors_type_bytes(type), words, size);
  };
  TensorPass(*runtime_, tensors, weights.parameters, {{i, type, read}}).run(where);
  return bytes;
}

Buffer WeightStaging::copy_of(ParameterId id, const Buffer& buffer) const {
  Buffer copy = allocate_compute_copy(runtime_->backend, runtime_->model->manifest().parameter(id), runtime_->profile);
  const View to = copy.view().reshape(1, copy.view().size()), from = buffer.view().reshape(1, buffer.view().size());
  std::vector<Copied> pieces;  // for all threads
  for (std::int64_t at = 0; at < to.cols; at += kCopiedAtOnce) {
    const std::int64_t count = std::min(kCopiedAtOnce, to.cols - at);
    pieces.push_back({to.column_range(at, count), from.column_range(at, count)});
  }
  copy_all(runtime_->backend.device(), pieces);
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

std::shared_ptr<const WeightSet> WeightStaging::write(const OnExecutor& on, StagedWeights& staged, const LiveWeights& live) const {
  const ModelTensors tensors(runtime_->model->manifest(), runtime_->profile);
  check(on, tensors, staged.changes, live.weights->parameters, false);
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
  // Sets one tensor's elements to what a payload makes of `before`.
  const auto write_payload = [&](const StagedWeights::Change& one, const std::string& before, TensorCodec codec, const std::string& payload, bool tell,
                                 std::vector<Buffer>& to) {
    std::string now = before;
    decode_tensor(codec, one.type, payload, before, now);
    tensors.each_change(one.tensor, 0, before, now, one.type, kMostChanges, [&](const Changes& some) {
      if (tell) tell_ranks(staged, some);
      write_all(some, to);
    });
  };
  std::size_t begun = 0;  // changes that were written, the last perhaps in part
  std::string before;     // of the last one, where many elements change
  try {
    for (const StagedWeights::Change& one : staged.changes) {
      ++begun;
      if (one.many) {
        before = whole_tensor(on, tensors, *live.weights, one.tensor, one.type);
        write_payload(one, before, one.codec, one.payload, true, next->parameters);
        before.clear();
      } else {
        tell_ranks(staged, one.there);
        write_all(one.there, next->parameters);
      }
    }
    check(on, tensors, staged.changes, next->parameters, true);
  } catch (...) {
    // Of the live weights' own memory. What others have was copied, and is as it was.
    std::vector<Buffer> own = live.weights->parameters;
    for (; begun > 0; --begun) {
      const StagedWeights::Change& one = staged.changes[begun - 1];
      if (!one.many) {
        write_all(one.back, own);
        continue;
      }
      const std::string now = whole_tensor(on, tensors, *live.weights, one.tensor, one.type);
      if (!before.empty()) {  // written in part, which no payload undoes
        tensors.each_change(one.tensor, 0, now, before, one.type, kMostChanges, [&](const Changes& some) { write_all(some, own); });
        before.clear();
      } else if (digest_of(now) != one.before) {
        write_payload(one, now, one.undo_codec, one.undo, false, own);
      }
    }
    throw;
  }
  next->changes = staged.for_ranks;
  return next;
}

void WeightStaging::check(const OnExecutor& on, const ModelTensors& tensors, const std::vector<StagedWeights::Change>& changes,
                          const std::vector<Buffer>& buffers, bool after) const {
  std::vector<RunningDigest> digests(changes.size());
  std::vector<PassedTensor> list;
  for (std::size_t i = 0; i < changes.size(); ++i) list.push_back(digested(changes[i].tensor, changes[i].type, digests[i]));
  TensorPass(*runtime_, tensors, buffers, std::move(list)).run(on);
  for (std::size_t i = 0; i < changes.size(); ++i)
    if (const std::string digest = digests[i].hex(), &expected = after ? changes[i].after : changes[i].before; digest != expected)
      fail(ErrorCode::corrupt_file, "tensor {} of the live weights has the digest {}, expected {}; they stay as they are",
           quoted_name(tensors.shapes()[changes[i].tensor].name), digest, expected);
}

}  // namespace lockstep
