#include "sync/channel.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"
#include "sync/manifest.h"

namespace lockstep {
namespace {
constexpr std::string_view kHeld = "held-";
}

bool is_channel_name(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= 64 && plain(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return plain(c) || c == '-' || c == '_' || c == '.'; }) && !is_digest(name, 64);
}

std::string channel_text(const Channel& channel) {
  return nlohmann::json{{"sequence", channel.sequence}, {"target", channel.target}, {"transition", channel.transition}}.dump();
}

Channel parse_channel(std::string_view text) {
  Channel channel;
  const auto json = read_json_or_null(text);
  const auto field = [&](const char* name) { return json.is_object() && json.contains(name) ? json[name] : nlohmann::ordered_json(); };
  const auto sequence = field("sequence"), target = field("target"), transition = field("transition");
  if (sequence.is_number_unsigned()) channel.sequence = sequence.get<std::uint64_t>();
  if (target.is_string()) channel.target = target.get<std::string>();
  if (transition.is_string()) channel.transition = transition.get<std::string>();
  if (!is_digest(channel.target, 64) || channel.sequence == 0 || (channel.transition != "staged" && channel.transition != "immediate") ||
      channel_text(channel) != text)
    fail(ErrorCode::corrupt_file, "the channel's record is not one: sequence from 1, target an id, transition staged or immediate, as canonical JSON");
  return channel;
}

std::optional<Channel> read_channel_record(const Store& store, const std::string& name) {
  const auto text = store.read_channel(name);
  if (!text) return std::nullopt;
  return with_context(fmt::format("reading channel '{}' of '{}'", name, store.label()), [&] { return parse_channel(*text); });
}

Channel move_channel(Store& store, const std::string& name, const std::string& target, const std::string& transition,
                     const std::optional<std::string>& expected) {
  constexpr int kTries = 100;  // each failure is another's success
  for (int tried = 0; tried < kTries; ++tried) {
    const auto before = read_channel_record(store, name);
    if (before && before->target == target && before->transition == transition) return *before;
    if (expected && (before ? before->target : std::string()) != *expected)
      fail(ErrorCode::already_exists, "channel '{}' of '{}' points at {}, and {} was expected; somebody moved it: look at `lockstep snapshot show {} {}`", name,
           store.label(), before ? before->target : "nothing", expected->empty() ? "no such channel" : *expected, store.label(), name);
    if (before && before->sequence == UINT64_MAX)
      fail(ErrorCode::corrupt_file, "channel '{}' of '{}' has the number {}, after which there is none; use another channel", name, store.label(),
           before->sequence);
    const Channel after{before ? before->sequence + 1 : 1, target, transition};
    if (store.swap_channel(name, before ? std::optional(channel_text(*before)) : std::nullopt, channel_text(after))) return after;
  }
  fail(ErrorCode::already_exists, "channel '{}' of '{}' was moved by others {} times while it was to be moved", name, store.label(), kTries);
}

bool is_hold_name(std::string_view name) { return name.starts_with(kHeld) && is_digest(name.substr(kHeld.size()), 16); }

std::string hold_snapshot(Store& store, const std::string& id, const std::string& name,
                          const std::function<void(const std::string&, const std::string&)>& note) {
  const auto made_up = [] { return std::string(kHeld) + hex64(random_bits()); };
  const std::string record = channel_text({1, id, "immediate"});
  for (std::string channel = is_channel_name(name) && !is_hold_name(name) ? name : made_up();; channel = made_up()) {
    if (store.read_channel(channel)) continue;
    if (note) note(channel, id);
    if (store.swap_channel(channel, std::nullopt, record)) return channel;
  }
}

bool release_snapshot(Store& store, const std::string& channel, const std::string& id) {
  return store.remove_channel(channel, channel_text({1, id, "immediate"}));
}

}  // namespace lockstep
