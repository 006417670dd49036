// Reads snapshots from a store: manifests by id, and tensors by applying the deltas of the chain of parents, with every digest checked. Any thread.
//   SnapshotChain chain(store, find_snapshot(store, "chat"));   bytes = chain.tensor(chain.manifest().tensors[0]);
#pragma once
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sync/folder_tensors.h"
#include "sync/manifest.h"
#include "sync/store.h"
#include "sync/tensor_update.h"

namespace lockstep {

struct Snapshot {
  std::string id;
  SnapshotManifest manifest;
};

// The snapshot that a name means: an id, the first digits of an id (at least 6, and no other begins with them), or a channel, which points at one.
// Error not_found.
std::string find_snapshot(const Store& store, const std::string& name);
// Errors: not_found; corrupt_file when the manifest's text has another SHA-256 than its name; those of read_manifest.
Snapshot load_snapshot(const Store& store, const std::string& id);
// A small file of a snapshot, its SHA-256 compared. Errors: not_found, corrupt_file.
std::string read_snapshot_file(const Store& store, const std::string& id, const SnapshotFile& file);

class SnapshotChain {
 public:
  // Tensors that the caller has: the bytes of one of this name, type and shape, or nothing.
  using LocalTensors = std::function<std::optional<std::string>(const TensorShape& wanted)>;
  // `local`: a Hugging Face folder with weights of any snapshot of the chain, or similar ones: a tensor whose digest occurs in the chain is not
  // fetched. `path`: a shorter way found by plan_path (sync/snapshot_ways.h), followed as far as it exists; empty: the parents. Manifests are loaded
  // when they are
  // needed. Error not_found.
  SnapshotChain(const Store& store, const std::string& id, const std::optional<std::filesystem::path>& local = std::nullopt,
                std::vector<std::string> path = {});
  // The same with tensors from elsewhere; `label` says whose they are, for messages.
  SnapshotChain(const Store& store, const std::string& id, LocalTensors local, std::string label, std::vector<std::string> path = {});
  const std::string& id() const { return head_.id; }
  const SnapshotManifest& manifest() const { return head_.manifest; }
  // The row-major bytes of a tensor of manifest(). Errors: corrupt_file, naming snapshot, tensor, both digests and what heals it; not_found for a
  // parent or an object that is not in the store.
  std::string tensor(const SnapshotTensor& tensor) const;
  // The same for a caller that has some version of the tensor already, whatever its digest; empty: none.
  std::string tensor(const SnapshotTensor& tensor, std::string local) const;
  // How a tensor of manifest() comes from bytes with this digest, which the caller has (empty: from none). Errors: as tensor().
  std::unique_ptr<TensorUpdate> update(const SnapshotTensor& tensor, const std::string& local_digest) const;
  // Reads the payloads that tensor() or update() will need when the caller has bytes with this digest (empty: none), and holds them until then. Returns their
  // bytes. Errors: as tensor().
  std::uint64_t prefetch(const SnapshotTensor& tensor, const std::string& local_digest) const;
  // The objects that are needed to read all files and tensors. Those of tensors are left out if they depend on what is local: with local tensors and
  // no path.
  std::vector<std::string> objects() const;
  // Payload bytes that were read for tensors so far.
  std::uint64_t fetched() const;
  double fetch_seconds() const;

 private:
  // A tensor of a link of the chain, as that one changes it.
  struct Step {
    const Snapshot* snapshot;
    const SnapshotTensor* tensor;
  };
  const Snapshot& link(std::size_t index) const;  // 0: the newest
  // From the newest link back to one that needs none before it, or is made from bytes with this digest.
  std::vector<Step> steps(const SnapshotTensor& wanted, const std::string& local_digest) const;
  std::string payload(const Step& step) const;
  const Store& store_;
  Snapshot head_;
  LocalTensors local_;
  std::string local_label_;
  mutable std::map<std::pair<std::string, std::uint64_t>, std::string> payloads_;  // that are kept, by object and offset
  mutable std::mutex mutex_;
  mutable std::vector<std::string> path_;  // shorter when one of it is not there
  mutable std::deque<Snapshot> snapshots_;
  mutable std::uint64_t fetched_ = 0;
  mutable double fetch_seconds_ = 0;
};

}  // namespace lockstep
