#include "sync/snapshot.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/seconds.h"
#include "sync/channel.h"

namespace lockstep {
namespace {
constexpr std::size_t kShortestPrefix = 6;
constexpr std::size_t kDecodedBytes = std::size_t{256} << 10;  // of a tensor that stay in a processor's own cache while they are decoded and hashed

std::string short_id(const std::string& id) { return id.substr(0, 12); }
std::string digest_of(const std::string& bytes) { return xxh3_128_hex(bytes.data(), bytes.size()); }
}  // namespace

std::string find_snapshot(const Store& store, const std::string& name) {
  if (is_digest(name, 64)) {
    if (store.size(StoredKind::manifest, name)) return name;
    fail(ErrorCode::not_found, "snapshot {} is not in '{}'; `lockstep snapshot show {}` lists what is", name, store.label(), store.label());
  }
  if (is_channel_name(name))
    if (const auto channel = read_channel_record(store, name)) return channel->target;
  std::vector<std::string> found;
  if (name.size() >= kShortestPrefix && is_digest(name, name.size()))
    for (const std::string& id : store.list(StoredKind::manifest))
      if (id.starts_with(name)) found.push_back(id);
  if (found.size() == 1) return found.front();
  if (found.size() > 1) fail(ErrorCode::not_found, "{} snapshots of '{}' begin with '{}'; write more digits", found.size(), store.label(), name);
  fail(ErrorCode::not_found, "'{}' is no snapshot and no channel of '{}'; allowed are an id, its first digits ({} or more), or a channel's name{}",
       name.substr(0, 80), store.label(), kShortestPrefix, did_you_mean(name, store.channels()));
}

Snapshot load_snapshot(const Store& store, const std::string& id) {
  return with_context(fmt::format("reading snapshot {}", short_id(id)), [&] {
    const auto bytes = store.size(StoredKind::manifest, id);
    if (!bytes) fail(ErrorCode::not_found, "snapshot {} is not in '{}'", id, store.label());
    if (*bytes > kMostManifestBytes) fail(ErrorCode::corrupt_file, "the manifest has {} bytes, allowed are {}", *bytes, kMostManifestBytes);
    const std::string text = store.read(StoredKind::manifest, id, 0, *bytes);
    if (const std::string digest = sha256_hex(text); digest != id)
      fail(ErrorCode::corrupt_file, "the manifest of snapshot {} in '{}' has the SHA-256 {}; push the snapshot again, or copy its manifest from another store",
           id, store.label(), digest);
    return Snapshot{id, read_manifest(text)};
  });
}

std::string read_snapshot_file(const Store& store, const std::string& id, const SnapshotFile& file) {
  const auto bytes = store.size(StoredKind::object, file.sha256);
  if (!bytes)
    fail(ErrorCode::not_found, "snapshot {}: the object {} of file '{}' is not in '{}'; push the snapshot again", short_id(id), file.sha256, file.name,
         store.label());
  const std::string text = *bytes == file.bytes ? store.read(StoredKind::object, file.sha256, 0, file.bytes) : std::string();
  if (const std::string digest = sha256_hex(text); *bytes != file.bytes || digest != file.sha256)
    fail(ErrorCode::corrupt_file, "snapshot {}: file '{}' has {} bytes with the SHA-256 {} in '{}', expected {} with {}; push the snapshot again", short_id(id),
         file.name, *bytes, *bytes == file.bytes ? digest : "(not read)", store.label(), file.bytes, file.sha256);
  return text;
}

namespace {
SnapshotChain::LocalTensors tensors_of(const std::optional<std::filesystem::path>& folder) {
  if (!folder) return {};
  return [tensors = std::make_shared<const FolderTensors>(*folder)](const TensorShape& wanted) -> std::optional<std::string> {
    const TensorShape* here = tensors->find(wanted.name);
    if (!here || here->type != wanted.type || here->shape != wanted.shape) return std::nullopt;
    return tensors->read(*here);
  };
}
}  // namespace

SnapshotChain::SnapshotChain(const Store& store, const std::string& id, const std::optional<std::filesystem::path>& local, std::vector<std::string> path)
    : SnapshotChain(store, id, tensors_of(local), local ? local->string() : std::string(), std::move(path)) {}

SnapshotChain::SnapshotChain(const Store& store, const std::string& id, LocalTensors local, std::string label, std::vector<std::string> path)
    : store_(store), head_(load_snapshot(store, id)), local_(std::move(local)), local_label_(std::move(label)), path_(std::move(path)) {
  // Another snapshot of the same content may stand in its place; when it is gone or has another, its own is taken.
  if (!path_.empty() && path_.front() != id && store.size(StoredKind::manifest, path_.front()))
    if (Snapshot first = load_snapshot(store, path_.front()); content_digest(first.manifest) == content_digest(head_.manifest))
      snapshots_.push_back(std::move(first));
  if (snapshots_.empty()) {
    if (!path_.empty() && path_.front() != id) path_.clear();
    snapshots_.push_back(head_);
  }
}

const Snapshot& SnapshotChain::link(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  while (snapshots_.size() <= index) {
    const Snapshot& child = snapshots_.back();
    if (snapshots_.size() < path_.size()) {
      const std::string& next = path_[snapshots_.size()];
      if (next != child.manifest.parent && store_.size(StoredKind::manifest, next)) {
        snapshots_.push_back(load_snapshot(store_, next));
        continue;
      }
      if (next != child.manifest.parent) path_.resize(snapshots_.size());  // it is gone: by parents from here on
    }
    const std::string parent = child.manifest.parent;
    if (!store_.size(StoredKind::manifest, parent))
      fail(ErrorCode::not_found, "snapshot {} needs its parent {}, which is not in '{}'{}; push the parent there, or give a folder with its weights (--base)",
           short_id(child.id), parent, store_.label(), local_ ? fmt::format(", and '{}' holds other weights", local_label_) : std::string());
    snapshots_.push_back(load_snapshot(store_, parent));
  }
  return snapshots_[index];
}

std::vector<std::string> SnapshotChain::objects() const {
  std::set<std::string> found;
  for (const SnapshotFile& file : head_.manifest.files) found.insert(file.sha256);
  std::size_t links = local_ ? 0 : SIZE_MAX;
  if (const std::lock_guard lock(mutex_); !path_.empty()) links = path_.size();
  for (std::size_t i = 0; i < links; ++i) {
    const Snapshot& snapshot = link(i);
    bool more = false;  // something is needed of what comes before
    for (const SnapshotTensor& tensor : snapshot.manifest.tensors) {
      if (!tensor.object.empty()) found.insert(tensor.object);
      more |= tensor.codec != TensorCodec::full;
    }
    if (!more || snapshot.manifest.parent.empty()) break;
  }
  return {found.begin(), found.end()};
}

std::uint64_t SnapshotChain::fetched() const {
  const std::lock_guard lock(mutex_);
  return fetched_;
}

double SnapshotChain::fetch_seconds() const {
  const std::lock_guard lock(mutex_);
  return fetch_seconds_;
}

std::vector<SnapshotChain::Step> SnapshotChain::steps(const SnapshotTensor& wanted, const std::string& local_digest) const {
  const std::string& name = wanted.shape.name;
  std::vector<Step> steps;
  for (bool begun = local_digest == wanted.result; !begun;) {
    const std::size_t i = steps.size();
    const Snapshot& snapshot = link(i);
    const SnapshotTensor* tensor = i == 0 && snapshot.id == head_.id ? &wanted : snapshot.manifest.find(name);
    const auto before = [&] { return steps.empty() ? short_id(head_.id) : short_id(steps.back().snapshot->id); };
    if (!tensor || tensor->shape.type != wanted.shape.type || tensor->shape.shape != wanted.shape.shape)
      fail(ErrorCode::corrupt_file, "snapshot {} changes tensor {}, {} of shape {}, and its parent {} has no such tensor; push snapshot {} again", before(),
           quoted_name(name), safetensors_type_name(wanted.shape.type), shape_text(wanted.shape.shape), short_id(snapshot.id), before());
    if (i == 0 && tensor->result != wanted.result)
      fail(ErrorCode::corrupt_file, "snapshot {}: tensor {} becomes {}, expected {}", short_id(snapshot.id), quoted_name(name), tensor->result, wanted.result);
    if (i > 0 && tensor->result != steps.back().tensor->base)
      fail(ErrorCode::corrupt_file, "snapshot {}: tensor {} is made from {}, and its parent {} has {}; push snapshot {} again", before(), quoted_name(name),
           steps.back().tensor->base, short_id(snapshot.id), tensor->result, before());
    steps.push_back({&snapshot, tensor});
    begun = tensor->codec == TensorCodec::full || (!local_digest.empty() && tensor->base == local_digest);
  }
  return steps;
}

std::string SnapshotChain::payload(const Step& step) const {
  const SnapshotTensor& tensor = *step.tensor;
  if (tensor.bytes == 0) return {};
  {
    const std::lock_guard lock(mutex_);
    if (auto kept = payloads_.extract({tensor.object, tensor.offset}); !kept.empty()) return std::move(kept.mapped());
  }
  const auto began = std::chrono::steady_clock::now();
  if (!store_.size(StoredKind::object, tensor.object))
    fail(ErrorCode::not_found, "snapshot {}: the object {} of tensor {} is not in '{}'; push the snapshot again", short_id(step.snapshot->id), tensor.object,
         quoted_name(tensor.shape.name), store_.label());
  std::string bytes = store_.read(StoredKind::object, tensor.object, tensor.offset, tensor.bytes);
  const std::lock_guard lock(mutex_);
  fetched_ += tensor.bytes;
  fetch_seconds_ += seconds_since(began);
  return bytes;
}

std::uint64_t SnapshotChain::prefetch(const SnapshotTensor& wanted, const std::string& local_digest) const {
  std::uint64_t bytes = 0;
  for (const Step& step : steps(wanted, local_digest)) {
    std::string read = payload(step);
    bytes += read.size();
    const std::lock_guard lock(mutex_);
    payloads_.emplace(std::pair(step.tensor->object, step.tensor->offset), std::move(read));
  }
  return bytes;
}

std::string SnapshotChain::tensor(const SnapshotTensor& wanted) const {
  std::optional<std::string> here = local_ ? local_(wanted.shape) : std::nullopt;
  return tensor(wanted, here ? std::move(*here) : std::string());
}

std::unique_ptr<TensorUpdate> SnapshotChain::update(const SnapshotTensor& wanted, const std::string& local_digest) const {
  auto update = std::make_unique<TensorUpdate>(wanted.shape, store_.label());
  const std::vector<Step> steps = this->steps(wanted, local_digest);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step)
    if (const SnapshotTensor& tensor = *step->tensor; tensor.codec != TensorCodec::same)
      update->add(step->snapshot->id, tensor.codec, payload(*step), tensor.object, tensor.result);
  return update;
}

std::string SnapshotChain::tensor(const SnapshotTensor& wanted, std::string bytes) const {
  const auto update = this->update(wanted, bytes.size() == wanted.shape.bytes ? digest_of(bytes) : std::string());
  bytes.resize(static_cast<std::size_t>(wanted.shape.bytes));
  for (std::size_t at = 0; at < bytes.size(); at += kDecodedBytes) update->next(bytes.data() + at, std::min(kDecodedBytes, bytes.size() - at));
  update->finish();
  return bytes;
}

}  // namespace lockstep
