// A channel: a small record in a store that names the current snapshot. Its text is canonical JSON, as
// {"sequence":7,"target":"<id>","transition":"staged"}. The number grows by one with every change, so an older or repeated signal is recognised. It
// changes by compare-and-swap only.
//   const Channel now = read_channel_record(store, "chat").value();   move_channel(store, "chat", id);
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "sync/store.h"

namespace lockstep {

inline constexpr std::size_t kMostChannelBytes = 4096;

struct Channel {
  std::uint64_t sequence = 0;
  std::string target;                    // a snapshot's id
  std::string transition = "immediate";  // or "staged": all followers at once, when the last one has it
};

bool is_channel_name(std::string_view name);
std::string channel_text(const Channel& channel);
// Error corrupt_file for anything that channel_text does not write.
Channel parse_channel(std::string_view text);
// Nothing when there is no such channel.
std::optional<Channel> read_channel_record(const Store& store, const std::string& name);
// Points the channel at a snapshot and gives the record that then stands. When it already does, nothing is written. With `expected`, the channel
// must point there (empty: must not be): otherwise, and when another moves it at the same time over and over, error already_exists.
Channel move_channel(Store& store, const std::string& name, const std::string& target, const std::string& transition = "immediate",
                     const std::optional<std::string>& expected = std::nullopt);

// Channels that hold one snapshot, so that it is not pruned, and never move. Those that hold_snapshot makes up are called held-<16 digits>, and are nobody's
// name for it.
bool is_hold_name(std::string_view name);
// Makes a channel that points at the snapshot: `name`, or one made up where that is no name for a channel, or taken. `note` is called before a channel is
// written. Returns its name.
std::string hold_snapshot(Store& store, const std::string& id, const std::string& name,
                          const std::function<void(const std::string& channel, const std::string& id)>& note = {});
// Removes a channel that hold_snapshot made. False: it is gone, or somebody moved it, whose it is now.
bool release_snapshot(Store& store, const std::string& channel, const std::string& id);

}  // namespace lockstep
