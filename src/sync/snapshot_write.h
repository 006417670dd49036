// Makes snapshots from a Hugging Face folder, or from two snapshots of a store (squash). Objects are written first, then the manifest, then the
// channel, so a kill leaves the old snapshot current; the next writer removes the leftovers. One writer of a store at a time.
//   const Written written = push_folder(*store, "export", {.parent = id, .written = [&](const Written& now) {
//     move_channel(*store, "chat", now.id); }});
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "sync/snapshot.h"

namespace lockstep {

// Called when `tensors` more tensors, of `bytes` bytes in all, are done.
using TensorProgress = std::function<void(std::int64_t tensors, std::uint64_t bytes)>;

struct Written {
  std::string id, content;
  std::uint64_t full_bytes = 0, payload_bytes = 0, manifest_bytes = 0, file_bytes = 0;  // file_bytes: of small files that were new to the store
  std::map<std::string, std::int64_t> codecs;                                           // tensors of each
  std::int64_t changed_elements = 0, elements = 0;                                      // of tensors that were compared
};

struct PushOptions {
  std::string parent;                          // id; empty: none, all tensors whole
  std::optional<std::filesystem::path> local;  // a folder with the parent's weights, so that these are not read from the store
  // The parent's tensors from whoever has them in memory; empty: `local`, or the store.
  SnapshotChain::LocalTensors parent_tensors = {};
  std::string profile;  // name of a numerics profile, or empty
  int threads = 2;
  bool locked = false;                                                       // of squash_snapshots: the caller holds store.writing()
  std::function<void(std::size_t tensors, std::uint64_t bytes)> begin = {};  // what there is to do
  TensorProgress progress = {};
  // Called by push_folder while it holds the store's lock, to let a channel point at the snapshot before another process could prune it.
  std::function<void(const Written& now)> written = {};
};

// The small files of a model that travel with its tensors.
extern const std::vector<std::string> kSnapshotFiles;

// Tensors that are pushed, wherever they come from; the functions are called from several threads.
struct PushedTensors {
  // What a caller who has the parent's bytes knows of a tensor.
  struct Known {
    std::string base, result;  // digests: of the parent's bytes, and of its own
    std::function<EncodedTensor()> encode;
  };
  std::vector<TensorShape> tensors;  // sorted by name
  std::function<std::string(std::size_t)> read;
  std::function<std::optional<Known>(std::size_t)> known = {};  // spares reading; nothing: it is read
};

// The same as a folder: tensors, and small files by name.
Written push_tensors(Store& store, const PushedTensors& tensors, const std::vector<std::pair<std::string, std::string>>& files, const PushOptions& options);

// Errors: not_found, corrupt_file (folder, parent); invalid_argument when config.json is that of another model than the parent's; io.
Written push_folder(Store& store, const std::filesystem::path& folder, const PushOptions& options);

// A snapshot with the content of `to` whose parent is `from`, or that has none when `from` is empty. Every result is compared with `to`'s.
// Its payloads are those that a push of `to` with this parent would make.
Written squash_snapshots(Store& store, const std::string& from, const std::string& to, const PushOptions& options);

}  // namespace lockstep
