// A second store that follows a channel of a first one, so that replicas near it do not load the trainer's uplink. It fetches each snapshot of the
// chain once and makes skip deltas 2, 4, 8, ... snapshots back, so that a follower n behind applies at most 2 log2(n) + 1 of them; and full copies on
// demand. One mirror a store at a time (its lock). A kill leaves the channel at the old or the new snapshot; nothing is fetched twice.
//   const MirrorReport report = mirror_channel(*from, *to, "chat", {.downloads = "region/downloads"});
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sync/snapshot_write.h"

namespace lockstep {

struct MirrorOptions {
  std::filesystem::path downloads;  // folder for unfinished downloads, when `from` is behind a network
  int parallel = 4, threads = 2;
  std::uint64_t full_every = 0;          // makes a full copy of each snapshot whose depth in the chain is a multiple of this; 0: none
  std::uint64_t longest_skip = 1 << 16;  // a power of two
  // `done` of `all` bytes of objects have been copied; `id`: the snapshot that is being copied.
  std::function<void(const std::string& id, std::uint64_t done, std::uint64_t all)> progress = {};
};

struct MirrorReport {
  std::vector<std::string> snapshots;                                    // copied, oldest first
  std::vector<std::string> skips, fulls;                                 // made
  std::uint64_t copied_bytes = 0, downloaded_bytes = 0, made_bytes = 0;  // objects copied, bytes that came over a network, payloads of what was made
  std::uint64_t sequence = 0;                                            // of the channel
  std::string target;
};

// Moves `to`'s channel to where `from`'s points. A record older than `to`'s own changes nothing. Errors: not_found (no such channel; a parent that
// neither store has, which is named); already_exists (something other than a mirror moved the channel); those of Downloads and load_snapshot.
MirrorReport mirror_channel(const Store& from, Store& to, const std::string& channel, const MirrorOptions& options);

}  // namespace lockstep
