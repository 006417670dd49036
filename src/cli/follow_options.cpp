#include "cli/follow_options.h"

#include <unistd.h>

#include "fleet/channel_deployments.h"

namespace lockstep {
namespace {
ChannelPlace place_of(const std::string& option, const std::string& text) {
  return as_usage([&] { return parse_channel_place(option, text); });
}
}  // namespace

std::string replica_name(std::int64_t port) {
  char host[256] = "replica";
  gethostname(host, sizeof host - 1);
  std::string name;
  for (const char c : std::string_view(host).substr(0, 48))
    name += (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c == '-' && !name.empty()) ? c : '_';
  if (name.empty() || name[0] == '_') name = "replica" + name;
  return fmt::format("{}-{}", name, port);
}

void add_follow_options(OptionTable& table, FollowSettings& s, const PublishSettings& publish) {
  const auto with_follow = [&] { table.refused("without --follow", [&s] { return !s.follows(); }); };
  table.text("follow", &s.place, "STORE/CHANNEL",
             "Follow a channel: each snapshot that it points at goes live here once every digest is right, beside other replicas (docs/weight-sync.md)");
  table.choice("swap-memory", &s.swap_memory, {"double", "single"},
               "Stage a snapshot as a second copy of what changed and exchange pointers, or write it into the weights in place while the engine waits");
  with_follow();
  table.choice(
      "in-flight", &s.in_flight, {"continue", "finish", "reprefill"},
      "How requests go on at a swap: over the keys and values that they have (their tokens are marked), on the old weights to their end, or with their "
      "text computed again under the new ones");
  with_follow();
  table.text("quorum", &s.quorum, "all|N", "How many live replicas must have a snapshot for the fleet to be ready");
  table.refused("without --follow or --publish", [&] { return !s.follows() && publish.place.empty(); });
  table.text("replica", &s.replica, "NAME", "This replica's name in the fleet (default: host and port)");
  with_follow();
  table.text("downloads", &s.downloads, "FOLDER",
             "Folder for what comes from a store behind a network, and goes on there after a kill; default: lockstep-downloads-NAME of the replica");
  with_follow();
  table.input("hot-load-folder", &s.hot_load_folder, "DIR",
              "Where another trainer leaves folders by their snapshots' names, whole or as deltas of arc_v1 or arc_v2: a hot load of such a name puts that "
              "into the store first");
  with_follow();
}

void add_publish_options(OptionTable& table, PublishSettings& s, const std::string& help) {
  table.text("publish", &s.place, "STORE/CHANNEL", help);
  table.choice("publish-transition", &s.transition, {"immediate", "staged"}, "Whether each follower takes them when it can, or all go over together");
  table.refused("without --publish", [&s] { return s.place.empty(); });
}

void check_publish(const PublishSettings& s) {
  if (!s.place.empty()) place_of("publish", s.place);
}

void check_follow(const FollowSettings& s, bool training) {
  as_usage([&] { return parse_quorum(s.quorum); });
  if (!s.follows()) return;
  place_of("follow", s.place);
  if (training) throw UsageError("follow is refused with --training: trained models begin with the base's weights, which must stay");
  if (s.swap_memory == "single" && s.in_flight == "finish")
    throw UsageError("in-flight is finish and swap-memory is single, allowed is one of the two: requests cannot finish on weights that are written over");
  if (!s.replica.empty() && !is_channel_name(s.replica))
    throw UsageError(fmt::format("replica is '{}', allowed are 1 to 64 letters, digits, '-', '_' and '.', a letter or digit first", s.replica));
}

std::shared_ptr<ChannelFleet> open_fleet(const FollowSettings& s) {
  const ChannelPlace place = place_of("follow", s.place);
  return std::make_shared<ChannelFleet>(open_store(place.store, true), place.channel, parse_quorum(s.quorum), std::string(), s.hot_load_folder);
}

std::shared_ptr<HostedDeployments> open_hosted_deployments(const FollowSettings& s, const std::filesystem::path& state, std::int64_t key_share) {
  if (!s.follows()) return std::make_shared<LocalDeployments>(state.empty() ? state : state / "hosted.json", key_share);
  const ChannelPlace place = place_of("follow", s.place);
  return std::make_shared<ChannelDeployments>(open_store(place.store, true), place.channel, key_share);
}

std::unique_ptr<Follower> start_follower(const FollowSettings& s, std::shared_ptr<GenerationService> service, const Followed& followed,
                                         const std::shared_ptr<ChannelFleet>& fleet, const std::string& url, std::int64_t port,
                                         std::shared_ptr<VersionGate> gate) {
  FollowOptions options;
  options.replica = s.replica.empty() ? replica_name(port) : s.replica;
  options.url = url;
  options.downloads = s.downloads.empty() ? "lockstep-downloads-" + options.replica : s.downloads;
  options.memory = s.swap_memory == "single" ? SwapMemory::single : SwapMemory::spare;
  options.in_flight = s.in_flight == "finish" ? InFlight::finish : s.in_flight == "reprefill" ? InFlight::reprefill : InFlight::go_on;
  options.base_sha256 = [reader = followed.reader] { return base_sha256(reader); };
  options.identity_of = [fleet](const std::string& snapshot) { return fleet->identity_of(snapshot); };
  if (options.memory == SwapMemory::spare) options.gate = std::move(gate);
  options.part = followed.part;
  const ChannelPlace place = place_of("follow", s.place);
  std::shared_ptr<Store> store = open_store(place.store, true, {.stall_seconds = 10, .tries = 3});  // it tries again itself
  if (store->is_far()) options.poll = std::chrono::milliseconds(250);
  return std::make_unique<Follower>(std::move(store), place.channel, std::move(service), followed.runtime, followed.executor, followed.weights, options);
}

}  // namespace lockstep
