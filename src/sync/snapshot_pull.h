// Writes a snapshot out as a Hugging Face folder, every tensor with the bytes that were pushed.
//   pull_snapshot(*store, id, "model", Overwrite::no, {.local = "model-before"});
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/output_path.h"
#include "sync/snapshot_write.h"

namespace lockstep {

struct PullOptions {
  std::optional<std::filesystem::path> local;  // a folder of an earlier snapshot, so that only what came after is read from the store
  std::filesystem::path downloads;             // where downloads from a remote store are kept, also over a kill; empty: OUT.lockstep.downloads
  int parallel = 4;                            // transfers at a time
  int threads = 2;
  std::uint64_t most_shard_bytes = 5'000'000'000;
  std::function<void(std::size_t tensors, std::uint64_t bytes)> begin = {};
  TensorProgress progress = {};
  // For a remote store: begin_download gets the bytes that must be fetched; downloaded is called as some arrive.
  std::function<void(std::uint64_t bytes)> begin_download = {}, downloaded = {};
};

struct Pulled {
  std::uint64_t full_bytes = 0, read_bytes = 0;  // of tensors; read_bytes: payloads out of the store
  std::uint64_t downloaded = 0;                  // bytes of objects that were fetched from a remote store in this call
  std::size_t deltas = 0;                        // snapshots on the shorter way that was taken (sync/snapshot_ways.h); 0: the parents
};

// The file of a pulled folder that names its snapshot: {"id":"..."}. Only a hint: tensors are checked by their digests.
inline constexpr const char* kPulledMark = "lockstep-snapshot.json";
// The snapshot's id in a folder's kPulledMark; empty: none.
std::string pulled_snapshot(const std::filesystem::path& folder);

// Writes the snapshot to `to`, all or nothing: an error or a kill leaves what was there. Errors: those of SnapshotChain and OutputFolder.
Pulled pull_snapshot(const Store& store, const std::string& id, const std::filesystem::path& to, Overwrite overwrite, const PullOptions& options);

}  // namespace lockstep
