#include "sync/replica_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/error.h"
#include "sync/channel.h"
#include "sync/manifest.h"

namespace lockstep {
namespace {
constexpr std::array<std::string_view, kReplicaStages> kStageNames = {"waiting", "downloading", "verifying", "applying",
                                                                      "staged",  "swapping",    "ready",     "error"};
constexpr std::size_t kMostReplicaErrorBytes = 2000;  // as JSON text at most six times as many, which the record has room for
constexpr const char* kReplicaKind = "replicas";

// No name of a channel has a '~', so what stands before it is the channel.
std::string record_name(const std::string& channel, const std::string& replica) {
  if (!is_channel_name(channel) || !is_channel_name(replica))
    fail(ErrorCode::invalid_argument, "the replica's name is '{}', allowed are 1 to 64 letters, digits, '-', '_' and '.', a letter or digit first",
         replica.substr(0, 100));
  return channel + "~" + replica;
}
}  // namespace

std::vector<std::pair<std::string, std::string>> read_replicas(const Store& store, const std::string& channel) {
  std::vector<std::pair<std::string, std::string>> all;
  const std::string begin = channel + "~";
  for (const std::string& name : store.records(kReplicaKind)) {
    if (!name.starts_with(begin)) continue;
    if (all.size() >= kMostReplicas)
      fail(ErrorCode::resource_exhausted, "channel '{}' of '{}' has more than {} replicas' records; remove those that are lost from its folder {}", channel,
           store.label(), kMostReplicas, kReplicaKind);
    try {
      if (auto text = store.read_record(kReplicaKind, name); text && text->size() <= kMostReplicaBytes)
        all.emplace_back(name.substr(begin.size()), std::move(*text));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::not_found) throw;  // it left in this moment
    }
  }
  return all;
}

void put_replica(Store& store, const std::string& channel, const std::string& name, const std::string& text) {
  store.put_record(kReplicaKind, record_name(channel, name), text);
}

void remove_replica(Store& store, const std::string& channel, const std::string& name) { store.remove_record(kReplicaKind, record_name(channel, name)); }

std::string_view stage_name(ReplicaStage stage) { return kStageNames[static_cast<std::size_t>(stage)]; }

std::optional<ReplicaStage> stage_named(std::string_view name) {
  const auto found = std::find(kStageNames.begin(), kStageNames.end(), name);
  if (found == kStageNames.end()) return std::nullopt;
  return static_cast<ReplicaStage>(found - kStageNames.begin());
}

std::string replica_text(const ReplicaRecord& r) {
  nlohmann::json seconds;
  for (std::size_t i = 0; i < kReplicaStages; ++i) seconds[std::string(kStageNames[i])] = r.seconds[i];
  const nlohmann::json json{{"name", r.name},
                            {"url", r.url},
                            {"model", r.model},
                            {"stage", stage_name(r.stage)},
                            {"current", r.current},
                            {"target", r.target},
                            {"current_sequence", r.current_sequence},
                            {"sequence", r.sequence},
                            {"full_bytes", r.full_bytes},
                            {"downloaded_bytes", r.downloaded_bytes},
                            {"changed_tensors", r.changed_tensors},
                            {"seconds", seconds},
                            {"error", r.error.substr(0, kMostReplicaErrorBytes)},
                            {"beat", r.beat},
                            {"unix_milliseconds", r.unix_milliseconds}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

ReplicaRecord parse_replica(std::string_view text) {
  const auto json = read_json_or_null(text);
  ReplicaRecord r;
  bool sound = json.is_object();
  const auto field = [&](const char* name) { return sound && json.contains(name) ? json[name] : nlohmann::ordered_json(); };
  const auto text_of = [&](const char* name, std::string& to, bool id = false) {
    const auto value = field(name);
    if (value.is_string()) to = value.get<std::string>();
    sound = sound && value.is_string() && (!id || to.empty() || is_digest(to, 64));
  };
  const auto number_of = [&](const char* name, std::uint64_t& to) {
    const auto value = field(name);
    if (value.is_number_unsigned()) to = value.get<std::uint64_t>();
    sound = sound && value.is_number_unsigned();
  };
  text_of("name", r.name);
  text_of("url", r.url);
  text_of("model", r.model);
  text_of("current", r.current, true);
  text_of("target", r.target, true);
  text_of("error", r.error);
  number_of("current_sequence", r.current_sequence);
  number_of("sequence", r.sequence);
  number_of("full_bytes", r.full_bytes);
  number_of("downloaded_bytes", r.downloaded_bytes);
  number_of("changed_tensors", r.changed_tensors);
  number_of("beat", r.beat);
  std::string stage;
  text_of("stage", stage);
  const auto named = stage_named(stage);
  sound = sound && named.has_value();
  if (named) r.stage = *named;
  if (const auto time = field("unix_milliseconds"); time.is_number_integer()) r.unix_milliseconds = std::max<std::int64_t>(time.get<std::int64_t>(), 0);
  if (const auto seconds = field("seconds"); seconds.is_object())
    for (std::size_t i = 0; i < kReplicaStages; ++i)
      if (const auto one = seconds.find(std::string(kStageNames[i])); one != seconds.end() && one->is_number()) r.seconds[i] = one->get<double>();
  if (!sound) fail(ErrorCode::corrupt_file, "the record of a replica is not one");
  return r;
}

}  // namespace lockstep
