#include "sync/mirror.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "sync/channel.h"
#include "sync/downloads.h"
#include "sync/snapshot_ways.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kCopyBytes = std::uint64_t{4} << 20;

std::uint64_t way_bytes(const Snapshot& snapshot) { return snapshot.manifest.payload_bytes() + manifest_text(snapshot.manifest).size(); }

std::vector<std::string> objects_of(const SnapshotManifest& manifest) {
  std::set<std::string> objects;
  for (const SnapshotFile& file : manifest.files) objects.insert(file.sha256);
  for (const SnapshotTensor& tensor : manifest.tensors)
    if (!tensor.object.empty()) objects.insert(tensor.object);
  return {objects.begin(), objects.end()};
}

// Returns its bytes. Error corrupt_file when they have another SHA-256: nothing stands in `to` then.
std::uint64_t copy_object(const Store& from, Store& to, const std::string& digest) {
  const auto bytes = from.size(StoredKind::object, digest);
  if (!bytes) fail(ErrorCode::not_found, "object {} is not in '{}'; push the snapshot again", digest, from.label());
  Sha256 hash;
  const auto object = to.write_object();
  for (std::uint64_t at = 0; at < *bytes; at += kCopyBytes) {
    const std::string piece = from.read(StoredKind::object, digest, at, std::min(kCopyBytes, *bytes - at));
    hash.update(piece);
    object->write(piece);
  }
  if (const std::string found = hash.hex(); found != digest)
    fail(ErrorCode::corrupt_file, "object {} of '{}' has the SHA-256 {}; push the snapshot again", digest, from.label(), found);
  kill_point("mirror.object");
  object->commit();
  return *bytes;
}

// The ancestor `back` snapshots before one that stands `depth` deep, by the longest ways.
std::string ancestor(const Store& store, std::string id, std::uint64_t back) {
  while (back > 0) {
    const auto ways = read_ways(store, id);
    const SnapshotWay* longest = nullptr;
    if (ways)
      for (const SnapshotWay& way : ways->ways)
        if (way.back > 0 && way.back <= back && (!longest || way.back > longest->back)) longest = &way;
    if (!longest) return "";
    back -= longest->back;
    id = longest->parent;
  }
  return id;
}

// Ways of a snapshot that stands whole in `to`, whose parents have theirs.
void make_ways(Store& to, const Snapshot& snapshot, const MirrorOptions& options, MirrorReport& report) {
  SnapshotWays ways;
  if (!snapshot.manifest.parent.empty()) {
    const auto before = read_ways(to, snapshot.manifest.parent);
    if (!before) fail(ErrorCode::internal, "snapshot {} of '{}' has no record of ways", snapshot.manifest.parent, to.label());
    ways.depth = before->depth + 1;
  }
  ways.ways.push_back({snapshot.id, snapshot.manifest.parent, ways.depth > 0 ? std::uint64_t{1} : 0, way_bytes(snapshot)});
  const auto add = [&](const std::string& parent, std::uint64_t back, std::vector<std::string>& made) {
    const Written written = squash_snapshots(to, parent, snapshot.id, {.threads = options.threads, .locked = true});
    ways.ways.push_back({written.id, parent, back, way_bytes(load_snapshot(to, written.id))});
    report.made_bytes += written.payload_bytes;
    made.push_back(written.id);
    kill_point("mirror.skip");
  };
  for (std::uint64_t back = 2; back <= options.longest_skip && ways.depth > 0 && ways.depth % back == 0; back *= 2)
    if (const std::string parent = ancestor(to, snapshot.manifest.parent, back - 1); !parent.empty()) add(parent, back, report.skips);
  if (options.full_every > 0 && ways.depth > 0 && ways.depth % options.full_every == 0) add("", 0, report.fulls);
  kill_point("mirror.ways");
  put_ways(to, snapshot.id, ways);
}
}  // namespace

MirrorReport mirror_channel(const Store& from, Store& to, const std::string& channel, const MirrorOptions& options) {
  const auto now = read_channel_record(from, channel);
  if (!now) fail(ErrorCode::not_found, "'{}' has no channel '{}'", from.label(), channel);
  MirrorReport report;
  report.target = now->target;
  report.sequence = now->sequence;
  {
    const auto stands = read_channel_record(to, channel);
    if (stands && stands->sequence >= now->sequence) {
      if (stands->sequence == now->sequence && stands->target != now->target)
        fail(ErrorCode::already_exists, "channel '{}' of '{}' has the number {} and another snapshot than that of '{}': somebody else moves it", channel,
             to.label(), now->sequence, from.label());
      report.target = stands->target;
      report.sequence = stands->sequence;
      return report;
    }
  }
  const auto lock = to.writing();
  std::vector<Snapshot> chain;  // newest first: what `to` has not, or not with its ways
  for (std::string id = now->target; !id.empty() && !read_ways(to, id); id = chain.back().manifest.parent) {
    const bool here = to.size(StoredKind::manifest, id).has_value();
    if (!here && !chain.empty() && !from.size(StoredKind::manifest, id))
      fail(ErrorCode::not_found, "snapshot {} needs its parent {}, which is neither in '{}' nor in '{}'; push the parent again", chain.back().id.substr(0, 12),
           id, from.label(), to.label());
    chain.push_back(load_snapshot(here ? to : from, id));
  }
  std::optional<Downloads> near;
  if (from.is_far()) near.emplace(from, options.downloads, DownloadOptions{options.parallel, {}});
  const Store& source = near ? static_cast<const Store&>(*near) : from;
  std::set<std::string> wanted;
  std::uint64_t all = 0, done = 0;
  for (const Snapshot& snapshot : chain)
    for (const std::string& object : objects_of(snapshot.manifest))
      if (!to.size(StoredKind::object, object) && wanted.insert(object).second) all += source.size(StoredKind::object, object).value_or(0);
  for (auto snapshot = chain.rbegin(); snapshot != chain.rend(); ++snapshot) {
    if (options.progress) options.progress(snapshot->id, done, all);
    std::vector<std::string> objects;
    for (const std::string& object : objects_of(snapshot->manifest))
      if (wanted.erase(object) > 0) objects.push_back(object);
    if (near) near->fetch(objects);
    for (const std::string& object : objects) {
      done += copy_object(source, to, object);
      if (near) near->forget(object);
      if (options.progress) options.progress(snapshot->id, done, all);
    }
    if (!to.size(StoredKind::manifest, snapshot->id)) {
      kill_point("mirror.manifest");
      to.put_manifest(manifest_text(snapshot->manifest));
      report.snapshots.push_back(snapshot->id);
    }
    make_ways(to, *snapshot, options, report);
  }
  report.copied_bytes = done;
  if (near) {
    report.downloaded_bytes = near->arrived();
    near->clear();
  }
  const auto before = to.read_channel(channel);
  kill_point("mirror.channel");
  if (before && parse_channel(*before).sequence >= now->sequence) return report;
  if (!to.swap_channel(channel, before, channel_text(*now)))
    fail(ErrorCode::already_exists, "channel '{}' of '{}' was moved by another while it was mirrored; run the mirror again", channel, to.label());
  return report;
}

}  // namespace lockstep
