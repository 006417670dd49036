// `lockstep fleet status|watch`: the replicas that follow a channel of a store (src/fleet/).
#include <cstdio>
#include <thread>

#include "base/seconds.h"
#include "base/signals.h"
#include "cli/command_kinds.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "fleet/channel_fleet.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

struct FleetWanted {
  std::string place, quorum = "all";
  bool json = false;
};

void add_fleet_rows(OptionTable& table, FleetWanted& wanted) {
  table.positional("STORE/CHANNEL", &wanted.place, true, "Store, '/', and the channel that they follow");
  table.text("quorum", &wanted.quorum, "all|N", "How many live replicas must have the target for the fleet to be ready");
  add_json_option(table, &wanted.json, "Print one JSON object a look and nothing else");
}

Quorum quorum_of(const FleetWanted& wanted) {
  return as_usage([&] { return parse_quorum(wanted.quorum); });
}

Json replica_json(const FleetReplica& one) {
  const ReplicaRecord& r = one.record;
  Json seconds = Json::object();
  for (std::size_t i = 0; i < kReplicaStages; ++i) seconds[std::string(stage_name(static_cast<ReplicaStage>(i)))] = r.seconds[i];
  return {{"name", r.name},
          {"url", r.url},
          {"stage", stage_name(r.stage)},
          {"lost", one.lost()},
          {"silent_seconds", one.silent_seconds},
          {"current", r.current},
          {"target", r.target},
          {"current_sequence", r.current_sequence},
          {"sequence", r.sequence},
          {"downloaded_bytes", r.downloaded_bytes},
          {"full_bytes", r.full_bytes},
          {"seconds", seconds},
          {"error", r.error}};
}

bool is_ready(const FleetState& state, const Quorum& quorum) { return state.channel && state.is_ready(state.channel->target, quorum); }

void print_state(const FleetState& state, const FleetWanted& wanted, const Quorum& quorum) {
  if (wanted.json) {
    Json replicas = Json::array();
    for (const FleetReplica& one : state.replicas) replicas.push_back(replica_json(one));
    Json json{{"ready", is_ready(state, quorum)},
              {"sequence", state.channel ? Json(state.channel->sequence) : Json()},
              {"target", state.channel ? Json(state.channel->target) : Json()},
              {"transition", state.channel ? Json(state.channel->transition) : Json()}};
    json["replicas"] = std::move(replicas);
    std::printf("%s\n", json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    if (state.channel)
      std::printf("%s: number %llu, %s, %s\n", wanted.place.c_str(), static_cast<unsigned long long>(state.channel->sequence), state.channel->target.c_str(),
                  is_ready(state, quorum) ? "ready" : "not ready");
    else std::printf("%s: no snapshot yet\n", wanted.place.c_str());
    for (const FleetReplica& one : state.replicas) {
      const ReplicaRecord& r = one.record;
      std::printf("  %-24s %-12s number %-6llu %-14s %s%s\n", r.name.c_str(), one.lost() ? "lost" : std::string(stage_name(r.stage)).c_str(),
                  static_cast<unsigned long long>(r.current_sequence), r.current.empty() ? "none" : r.current.substr(0, 12).c_str(), r.url.c_str(),
                  one.lost() ? fmt::format(", silent for {:.0f} s", one.silent_seconds).c_str() : "");
      if (!r.error.empty()) std::printf("    %s\n", r.error.c_str());
    }
    if (state.replicas.empty()) std::printf("  no replica follows it\n");
  }
  std::fflush(stdout);
}

FleetWatch watch_of(const FleetWanted& wanted) {
  const ChannelPlace place = as_usage([&] { return parse_channel_place("STORE/CHANNEL", wanted.place); });
  return {open_store(place.store), place.channel};
}

int status_command(const Arguments& arguments) {
  FleetWanted wanted;
  OptionTable table("fleet status", "Shows the replicas that follow a channel, the slowest first. Exit code 1 while the fleet is not ready.",
                    {"lockstep fleet status /mnt/weights/chat"});
  add_fleet_rows(table, wanted);
  if (!table.parse(arguments)) return kExitOk;
  const Quorum quorum = quorum_of(wanted);
  const FleetState state = watch_of(wanted).look();
  print_state(state, wanted, quorum);
  return is_ready(state, quorum) ? kExitOk : kExitError;
}

int watch_fleet_command(const Arguments& arguments) {
  FleetWanted wanted;
  bool until_ready = false;
  double seconds = 0;
  OptionTable table("fleet watch", "Shows the replicas that follow a channel whenever one changes, until Ctrl-C.",
                    {"lockstep fleet watch /mnt/weights/chat", "lockstep fleet watch /mnt/weights/chat --until-ready --seconds 60"});
  add_fleet_rows(table, wanted);
  table.flag("until-ready", &until_ready, "End when the fleet is ready");
  table.number("seconds", &seconds, 0, 1e9, "X", "End after so long, with exit code 1 while the fleet is not ready; 0: never");
  if (!table.parse(arguments)) return kExitOk;
  const Quorum quorum = quorum_of(wanted);
  FleetWatch watch = watch_of(wanted);
  install_interrupt_handlers();
  const auto began = std::chrono::steady_clock::now();
  std::string shown;
  while (true) {
    const FleetState state = watch.look();
    std::string now = state.channel ? std::to_string(state.channel->sequence) : std::string();
    for (const FleetReplica& one : state.replicas)
      now += fmt::format(" {} {} {} {} {}", one.record.name, static_cast<int>(one.record.stage), one.record.current_sequence, one.lost(), one.record.error);
    if (now != shown) print_state(state, wanted, quorum);
    shown = std::move(now);
    const bool ready = is_ready(state, quorum);
    if (until_ready && ready) return kExitOk;
    if (seconds > 0 && seconds_since(began) >= seconds) return ready ? kExitOk : kExitError;
    if (interrupted()) return 128 + interrupt_signal();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}
}  // namespace

int fleet_command(const Arguments& arguments) {
  return run_kind("fleet", {{"status", status_command}, {"watch", watch_fleet_command}},
                  "usage: lockstep fleet status|watch [options]\n\n"
                  "  lockstep serve --model models/countdown-glm --follow /mnt/weights/chat     # a replica, as often as wanted\n"
                  "  lockstep fleet status /mnt/weights/chat                                    # who has which snapshot\n\n"
                  "`lockstep fleet status --help` lists every option; docs/weight-sync.md says how fleets work.\n",
                  arguments);
}

}  // namespace lockstep
