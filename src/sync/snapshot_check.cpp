#include "sync/snapshot_check.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "sync/channel.h"
#include "sync/class_scan.h"
#include "sync/element.h"
#include "sync/snapshot_ways.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kVerifiedPiece = std::uint64_t{4} << 20;

std::string object_sha256(const Store& store, const std::string& digest, std::uint64_t bytes) {
  Sha256 hash;
  for (std::uint64_t at = 0; at < bytes; at += kVerifiedPiece) hash.update(store.read(StoredKind::object, digest, at, std::min(kVerifiedPiece, bytes - at)));
  return hash.hex();
}

// Each snapshot before its parent. One that cannot be read comes anywhere: nothing can be made of it.
std::vector<std::string> children_first(const Store& store, const std::vector<std::string>& ids) {
  std::map<std::string, std::string> parents;
  for (const std::string& id : ids) {
    std::string& parent = parents[id];
    try {
      parent = load_snapshot(store, id).manifest.parent;
    } catch (const Error&) {
    }
  }
  std::map<std::string, int> children;
  for (const auto& [id, parent] : parents) ++children[parent];
  std::vector<std::string> order;
  for (const std::string& id : ids)
    if (!children.contains(id)) order.push_back(id);
  for (std::size_t i = 0; i < order.size(); ++i)
    if (const std::string& parent = parents.at(order[i]); parents.contains(parent) && --children.at(parent) == 0) order.push_back(parent);
  return order;
}
}  // namespace

VerifyReport verify_snapshot(const Store& store, const std::string& id, const PullOptions& options) {
  VerifyReport report;
  const auto note = [&](auto&& work) {
    try {
      work();
    } catch (const Error& e) {
      report.faults.push_back(e.what());
    }
  };
  std::map<std::string, std::string> objects;  // and a snapshot that needs it
  std::vector<Snapshot> chain;
  note([&] {
    for (std::string next = id; !next.empty(); next = chain.back().manifest.parent) chain.push_back(load_snapshot(store, next));
  });
  for (const Snapshot& snapshot : chain) {
    ++report.snapshots;
    for (const SnapshotFile& file : snapshot.manifest.files) objects.emplace(file.sha256, snapshot.id);
    for (const SnapshotTensor& tensor : snapshot.manifest.tensors)
      if (!tensor.object.empty()) objects.emplace(tensor.object, snapshot.id);
  }
  for (const auto& [digest, snapshot] : objects)
    note([&] {
      const auto bytes = store.size(StoredKind::object, digest);
      if (!bytes) fail(ErrorCode::not_found, "snapshot {}: object {} is not in '{}'; push the snapshot again", snapshot.substr(0, 12), digest, store.label());
      ++report.objects;
      report.bytes += *bytes;
      if (const std::string found = object_sha256(store, digest, *bytes); found != digest)
        fail(ErrorCode::corrupt_file, "snapshot {}: object {} in '{}' has the SHA-256 {}; remove it and push the snapshot again", snapshot.substr(0, 12),
             digest, store.label(), found);
    });
  if (chain.empty()) return report;
  const SnapshotChain tensors(store, id, options.local);
  const std::vector<SnapshotTensor>& list = tensors.manifest().tensors;
  if (options.begin) options.begin(list.size(), tensors.manifest().full_bytes());
  for (const SnapshotFile& file : tensors.manifest().files) note([&] { read_snapshot_file(store, id, file); });
  std::vector<std::string> faults(list.size());
  std::mutex mutex;
  ThreadPool(options.threads).run(static_cast<std::int64_t>(list.size()), [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    try {
      tensors.tensor(list[i]);
    } catch (const Error& e) {
      faults[i] = e.what();
    }
    const std::lock_guard lock(mutex);
    if (options.progress) options.progress(1, list[i].shape.bytes);
  });
  report.tensors = static_cast<std::int64_t>(list.size());
  for (std::string& fault : faults)
    if (!fault.empty()) report.faults.push_back(std::move(fault));
  return report;
}

std::vector<TensorDifference> diff_snapshots(const Store& store, const std::string& before, const std::string& after, const PullOptions& options) {
  const SnapshotChain a(store, before), b(store, after);
  std::set<std::string> names;
  for (const SnapshotChain* chain : {&a, &b})
    for (const SnapshotTensor& tensor : chain->manifest().tensors) names.insert(tensor.shape.name);
  std::vector<TensorDifference> differences;
  std::uint64_t bytes = 0;
  for (const std::string& name : names) {
    const SnapshotTensor *x = a.manifest().find(name), *y = b.manifest().find(name);
    if (x && y && x->result == y->result && x->shape.type == y->shape.type && x->shape.shape == y->shape.shape) continue;
    differences.push_back({name, x ? x->result : "", y ? y->result : ""});
    bytes += (y ? y : x)->shape.bytes;
  }
  if (options.begin && !differences.empty()) options.begin(differences.size(), bytes);
  std::mutex mutex;
  ThreadPool(options.threads).run(static_cast<std::int64_t>(differences.size()), [&](std::int64_t at) {
    TensorDifference& difference = differences[static_cast<std::size_t>(at)];
    const SnapshotTensor *x = a.manifest().find(difference.name), *y = b.manifest().find(difference.name);
    const SnapshotTensor& one = y ? *y : *x;
    difference.elements = static_cast<std::int64_t>(one.shape.bytes) / safetensors_type_bytes(one.shape.type);
    const ElementKind kind = element_kind(one.shape.type);
    if (x && y && x->shape.type == y->shape.type && x->shape.shape == y->shape.shape && kind.width > 0) {
      const std::string old_bytes = a.tensor(*x), new_bytes = b.tensor(*y);
      difference.changed = 0;
      for (std::int64_t i = 0; i < difference.elements; ++i) {
        const std::uint32_t from = word_of(old_bytes.data(), kind.width, i), to = word_of(new_bytes.data(), kind.width, i);
        if (from == to) continue;
        ++difference.changed;
        const std::int64_t step = step_between(kind, order_of(kind, from), order_of(kind, to));
        difference.largest_step = std::max(difference.largest_step, static_cast<std::uint64_t>(step < 0 ? -step : step));
      }
    }
    const std::lock_guard lock(mutex);
    if (options.progress) options.progress(1, one.shape.bytes);
  });
  return differences;
}

PruneReport prune_store(Store& store, const std::vector<std::string>& keep, bool only_say) {
  const auto lock = store.writing();
  std::vector<std::string> waiting = keep;
  for (const std::string& name : store.channels())
    if (const auto channel = read_channel_record(store, name)) waiting.push_back(channel->target);
  if (waiting.empty()) fail(ErrorCode::invalid_argument, "'{}' has no channel, so nothing would be kept; say what is: --keep SNAPSHOT", store.label());
  std::set<std::string> snapshots, objects;
  while (!waiting.empty()) {
    const std::string id = waiting.back();
    waiting.pop_back();
    if (!snapshots.insert(id).second) continue;
    const Snapshot snapshot = load_snapshot(store, id);  // a damaged one stops all of it: nothing is removed on a guess
    for (const SnapshotFile& file : snapshot.manifest.files) objects.insert(file.sha256);
    for (const SnapshotTensor& tensor : snapshot.manifest.tensors)
      if (!tensor.object.empty()) objects.insert(tensor.object);
    if (!snapshot.manifest.parent.empty()) waiting.push_back(snapshot.manifest.parent);
    // Other ways to what is kept are kept: their parents are of the same chain.
    if (const auto ways = read_ways(store, id))
      for (const SnapshotWay& way : ways->ways)
        if (store.size(StoredKind::manifest, way.id)) waiting.push_back(way.id);
  }
  PruneReport report;
  report.kept = static_cast<std::int64_t>(snapshots.size());
  for (const auto& [kind, kept, removed] :
       {std::tuple(StoredKind::manifest, &snapshots, &report.snapshots), std::tuple(StoredKind::object, &objects, &report.objects)})
    for (const std::string& digest : store.list(kind))
      if (!kept->contains(digest)) {
        report.bytes += store.size(kind, digest).value_or(0);
        removed->push_back(digest);
      }
  if (only_say) return report;
  for (const std::string& name : store.records("ways"))
    if (!snapshots.contains(name)) store.remove_record("ways", name);
  // Manifests first: a kill leaves objects that nothing names, never a snapshot without its objects or its parent.
  for (const std::string& id : children_first(store, report.snapshots)) {
    store.remove(StoredKind::manifest, id);
    kill_point("prune.manifest");
  }
  kill_point("prune.manifests");
  for (const std::string& digest : report.objects) store.remove(StoredKind::object, digest);
  return report;
}

}  // namespace lockstep
