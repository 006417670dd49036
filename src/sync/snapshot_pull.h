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
  int threads = 2;
  std::uint64_t most_shard_bytes = 5'000'000'000;
  std::function<void(std::size_t tensors, std::uint64_t bytes)> begin = {};
  TensorProgress progress = {};
};

struct Pulled {
  std::uint64_t full_bytes = 0, read_bytes = 0;  // of tensors; read_bytes: payloads out of the store
};

// All or nothing: an error or a kill leaves what stood at `to`. Errors: those of SnapshotChain and OutputFolder.
Pulled pull_snapshot(const Store& store, const std::string& id, const std::filesystem::path& to, Overwrite overwrite, const PullOptions& options);

}  // namespace lockstep
