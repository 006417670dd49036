#include "sync/snapshot_ways.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/error.h"
#include "sync/manifest.h"

namespace lockstep {
namespace {
constexpr const char* kKind = "ways";
constexpr std::size_t kMostWays = 100, kMostReads = 400;
constexpr std::size_t kLongestEdges = 2;  // of each snapshot that are looked at
constexpr std::uint64_t kMostDepth = std::uint64_t{1} << 40;

std::uint64_t number_of(const nlohmann::ordered_json& json, const char* name) {
  if (!json.is_object() || !json.contains(name) || !json[name].is_number_unsigned())
    fail(ErrorCode::corrupt_file, "the record of ways has no number '{}'", name);
  return json[name].get<std::uint64_t>();
}
std::string text_of(const nlohmann::ordered_json& json, const char* name) {
  if (!json.contains(name) || (!json[name].is_string() && !json[name].is_null())) fail(ErrorCode::corrupt_file, "the record of ways has no text '{}'", name);
  return json[name].is_null() ? "" : json[name].get<std::string>();
}
}  // namespace

std::string ways_text(const SnapshotWays& ways) {
  nlohmann::json list = nlohmann::json::array();
  for (const SnapshotWay& way : ways.ways)
    list.push_back({{"back", way.back}, {"bytes", way.bytes}, {"id", way.id}, {"parent", way.parent.empty() ? nlohmann::json() : nlohmann::json(way.parent)}});
  return nlohmann::json{{"depth", ways.depth}, {"ways", list}}.dump();
}

SnapshotWays parse_ways(std::string_view text) {
  const auto json = read_json_or_null(text);
  SnapshotWays ways;
  ways.depth = number_of(json, "depth");
  if (!json.contains("ways") || !json["ways"].is_array() || json["ways"].empty() || json["ways"].size() > kMostWays)
    fail(ErrorCode::corrupt_file, "the record of ways has no list 'ways' of 1 to {}", kMostWays);
  for (const auto& one : json["ways"]) ways.ways.push_back({text_of(one, "id"), text_of(one, "parent"), number_of(one, "back"), number_of(one, "bytes")});
  for (const SnapshotWay& way : ways.ways)
    if (!is_digest(way.id, 64) || (!way.parent.empty() && !is_digest(way.parent, 64)) || way.parent.empty() != (way.back == 0) || way.back > ways.depth ||
        way.bytes > kMostDepth)
      fail(ErrorCode::corrupt_file, "the record of ways has one that is none");
  if (ways.depth > kMostDepth || ways_text(ways) != text) fail(ErrorCode::corrupt_file, "the record of ways is not canonical JSON");
  return ways;
}

std::optional<SnapshotWays> read_ways(const Store& store, const std::string& id) {
  const auto text = store.read_record(kKind, id);
  if (!text) return std::nullopt;
  try {
    return parse_ways(*text);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::corrupt_file) throw;
    return std::nullopt;
  }
}

void put_ways(Store& store, const std::string& id, const SnapshotWays& ways) { store.put_record(kKind, id, ways_text(ways)); }

SnapshotPath plan_path(const Store& store, const std::string& target, const std::string& have) {
  if (target == have) return {};
  const auto first = read_ways(store, target);
  if (!first) return {};
  // Depths of what is seen are known from the edges that lead there; a chain's snapshots have one each, so the deepest is dealt with first and
  // every edge leads to one that comes later.
  struct Node {
    std::uint64_t bytes = 0;  // from the target to it
    std::string child, way;   // where the cheapest way came from, by which snapshot
  };
  const auto ours = have.empty() ? std::nullopt : read_ways(store, have);
  const std::uint64_t floor = ours && ours->depth < first->depth ? ours->depth : 0;
  std::map<std::pair<std::uint64_t, std::string>, Node, std::greater<>> open{{{first->depth, target}, {}}};
  std::map<std::string, Node> seen;
  std::optional<Node> end;
  for (std::size_t reads = 0; !open.empty() && reads < kMostReads; ++reads) {
    const auto [key, node] = *open.begin();
    const auto& [depth, id] = key;
    open.erase(open.begin());
    seen[id] = node;
    if (!have.empty() && id == have) {
      if (!end || node.bytes < end->bytes) end = node;
      continue;
    }
    const auto ways = id == target ? first : read_ways(store, id);
    if (!ways || ways->depth != depth) continue;
    std::vector<SnapshotWay> edges = ways->ways;
    std::stable_sort(edges.begin(), edges.end(), [](const SnapshotWay& a, const SnapshotWay& b) { return a.back > b.back; });
    std::size_t taken = 0;
    for (const SnapshotWay& edge : edges) {
      const Node next{node.bytes + edge.bytes, id, edge.id};
      if (edge.parent.empty()) {
        if (!end || next.bytes < end->bytes) end = next;
      } else if (depth - edge.back >= floor && taken < kLongestEdges) {
        ++taken;
        const auto [at, is_new] = open.try_emplace({depth - edge.back, edge.parent}, next);
        if (!is_new && next.bytes < at->second.bytes) at->second = next;
      }
    }
  }
  if (!end) return {};
  SnapshotPath path{{}, end->bytes};
  for (Node at = *end; !at.way.empty(); at = seen.at(at.child)) path.ids.push_back(at.way);
  std::reverse(path.ids.begin(), path.ids.end());
  return path;
}

}  // namespace lockstep
