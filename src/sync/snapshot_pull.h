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
  std::filesystem::path downloads;             // what comes from a far store stands here meanwhile, and goes on after a kill; empty: OUT.lockstep.downloads
  int parallel = 4;                            // transfers at a time
  int threads = 2;
  std::uint64_t most_shard_bytes = 5'000'000'000;
  std::function<void(std::size_t tensors, std::uint64_t bytes)> begin = {};
  TensorProgress progress = {};
  // Of a far store: how many bytes of how many have to come, and that some came.
  std::function<void(std::uint64_t bytes)> begin_download = {}, downloaded = {};
};

struct Pulled {
  std::uint64_t full_bytes = 0, read_bytes = 0;  // of tensors; read_bytes: payloads out of the store
  std::uint64_t downloaded = 0;                  // bytes of objects that came from a far store now
  std::size_t deltas = 0;                        // snapshots by which the path led; 0: by parents
};

// The file of a pulled folder that says which snapshot it is: {"id":"..."}. A hint: tensors are compared with their digests.
inline constexpr const char* kPulledMark = "lockstep-snapshot.json";
// What that file of a folder says; empty: nothing.
std::string pulled_snapshot(const std::filesystem::path& folder);

// All or nothing: an error or a kill leaves what stood at `to`. Errors: those of SnapshotChain and OutputFolder.
Pulled pull_snapshot(const Store& store, const std::string& id, const std::filesystem::path& to, Overwrite overwrite, const PullOptions& options);

}  // namespace lockstep
