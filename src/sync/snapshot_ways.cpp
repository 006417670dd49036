#include "sync/snapshot_ways.h"

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

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

// How a snapshot is reached from the target, which is nearer to it at each step.
struct ReachedAt {
  std::uint64_t bytes = 0;
  std::string child, way;  // the one before it on the way, and by which snapshot; empty: it is the target
};
using ReachedBy = std::map<std::uint64_t, ReachedAt>;  // by the number of deltas, with the fewest bytes

// More deltas for no fewer bytes lead nowhere sooner.
ReachedBy without_dearer(const ReachedBy& all) {
  ReachedBy kept;
  for (const auto& [deltas, reached] : all)
    if (kept.empty() || reached.bytes < kept.rbegin()->second.bytes) kept.emplace(deltas, reached);
  return kept;
}

struct WayEnd {
  ReachedAt reached;
  std::uint64_t deltas = 0;
  bool last_is_delta = false;  // or a full copy
};

// Of those with at most `most` deltas the one with the fewest bytes. Where someone has an older snapshot and none from there is so short, of all: a full
// copy needs no delta, and may be far more to fetch.
std::optional<WayEnd> best_end(std::vector<WayEnd> ends, std::uint64_t most) {
  const bool has_older = std::any_of(ends.begin(), ends.end(), [](const WayEnd& end) { return end.last_is_delta; });
  const auto is_short = [&](const WayEnd& end) { return end.deltas <= most && end.last_is_delta == has_older; };
  if (std::any_of(ends.begin(), ends.end(), is_short)) std::erase_if(ends, [&](const WayEnd& end) { return end.deltas > most; });
  const auto best = std::min_element(
      ends.begin(), ends.end(), [](const WayEnd& a, const WayEnd& b) { return std::tie(a.reached.bytes, a.deltas) < std::tie(b.reached.bytes, b.deltas); });
  return best == ends.end() ? std::nullopt : std::optional(*best);
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

std::uint64_t most_deltas(std::uint64_t behind) {
  const std::uint64_t n = std::min(behind, std::uint64_t{0xffffffff});
  return static_cast<std::uint64_t>(std::bit_width(n * n));
}

SnapshotPath plan_path(const Store& store, const std::string& target, const std::string& have) {
  return plan_path_by([&store](const std::string& id) { return read_ways(store, id); }, target, have);
}

SnapshotPath plan_path_by(const WaysReader& read, const std::string& target, const std::string& have) {
  if (target == have) return {};
  const auto first = read(target);
  if (!first) return {};
  // Depths of what is seen are known from the edges that lead there; a chain's snapshots have one each, so the deepest is dealt with first and
  // every edge leads to one that comes later.
  const auto ours = have.empty() ? std::nullopt : read(have);
  const std::uint64_t floor = ours && ours->depth < first->depth ? ours->depth : 0;
  std::map<std::pair<std::uint64_t, std::string>, ReachedBy, std::greater<>> open;
  open[{first->depth, target}].emplace(0, ReachedAt{});
  std::map<std::string, ReachedBy> seen;
  std::vector<WayEnd> ends;
  for (std::size_t reads = 0; !open.empty() && reads < kMostReads; ++reads) {
    const auto [depth, id] = open.begin()->first;
    const ReachedBy& node = seen[id] = without_dearer(open.begin()->second);
    open.erase(open.begin());
    if (!have.empty() && id == have) {
      for (const auto& [deltas, reached] : node) ends.push_back({reached, deltas, true});
      continue;
    }
    const auto ways = id == target ? first : read(id);
    if (!ways || ways->depth != depth) continue;
    std::vector<SnapshotWay> edges = ways->ways;
    std::stable_sort(edges.begin(), edges.end(), [](const SnapshotWay& a, const SnapshotWay& b) { return a.back > b.back; });
    std::size_t taken = 0;
    for (const SnapshotWay& edge : edges) {
      const bool is_full = edge.parent.empty();
      if (!is_full && (depth - edge.back < floor || taken++ >= kLongestEdges)) continue;
      for (const auto& [deltas, reached] : node) {
        const ReachedAt next{reached.bytes + edge.bytes, id, edge.id};
        if (is_full) {
          ends.push_back({next, deltas, false});
          continue;
        }
        const auto [at, is_new] = open[{depth - edge.back, edge.parent}].try_emplace(deltas + 1, next);
        if (!is_new && next.bytes < at->second.bytes) at->second = next;
      }
    }
  }
  const std::optional<WayEnd> end = best_end(std::move(ends), most_deltas(first->depth - floor));
  if (!end) return {};
  SnapshotPath path{{}, end->reached.bytes};
  std::uint64_t deltas = end->last_is_delta ? end->deltas - 1 : end->deltas;  // before the last one
  for (ReachedAt at = end->reached; !at.way.empty(); at = seen.at(at.child).at(deltas--)) path.ids.push_back(at.way);
  std::reverse(path.ids.begin(), path.ids.end());
  return path;
}

}  // namespace lockstep
