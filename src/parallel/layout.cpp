#include "parallel/layout.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include "base/choice.h"
#include "base/error.h"
#include "parallel/planned_layout.h"

namespace lockstep {

std::vector<std::pair<int, int>> RankLayout::links() const {
  std::vector<std::pair<int, int>> all;
  for (int rank = 0; rank < size(); ++rank)
    if (stage_of(rank) + 1 < pp) all.emplace_back(rank, rank + model());
  return all;
}

std::string RankLayout::text() const {
  return fmt::format("tp={},dp={},ep={}{}{}{}{}", tp, dp, ep, pp > 1 ? fmt::format(",pp={}", pp) : "", cp > 1 ? fmt::format(",cp={}", cp) : "",
                     shard == RankShard::weights ? ",shard=weights" : "", rows == ReplicaRows::dealt ? ",rows=dealt" : "");
}

namespace {
// Whether the key has the second of its two words; the first is what it has where it is not there.
bool is_second(std::string_view text, const std::string& key, const std::string& word, const char* first, const char* second) {
  if (word != first && word != second)
    fail(ErrorCode::invalid_argument, "ranks is '{}': '{}' is '{}', allowed are {} and {}{}", text, key, word, first, second,
         did_you_mean(word, {first, second}));
  return word == second;
}

void check_rows(std::string_view text, const RankLayout& layout) {
  if (layout.rows == ReplicaRows::shared || (layout.tp == 1 && layout.pp == 1 && layout.cp == 1 && layout.shard == RankShard::state)) return;
  fail(ErrorCode::invalid_argument, "ranks is '{}': rows=dealt is allowed beside ep and dp, with tp=1, pp=1, cp=1 and shard=state", text);
}

// Of at most `most` ranks, each and in all.
RankLayout read_layout(std::string_view text, int most) {
  const std::string planned = most < kMostPlannedRanks ? fmt::format("; plan and simulate take up to {}", kMostPlannedRanks) : "";
  RankLayout layout;
  std::vector<std::string> seen;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const bool more = comma != std::string_view::npos;
    rest = more ? rest.substr(comma + 1) : std::string_view();
    const std::size_t equals = item.find('=');
    const std::string key(item.substr(0, equals));
    int* field = key == "tp" ? &layout.tp : key == "dp" ? &layout.dp : key == "ep" ? &layout.ep : key == "pp" ? &layout.pp : key == "cp" ? &layout.cp : nullptr;
    if (!field && key != "shard" && key != "rows")
      fail(ErrorCode::invalid_argument, "ranks is '{}': unknown key '{}', {}", text, key, allowed_are(key, {"tp", "dp", "ep", "pp", "cp", "shard", "rows"}));
    for (const std::string& other : seen)
      if (other == key) fail(ErrorCode::invalid_argument, "ranks is '{}': '{}' is there twice", text, key);
    seen.push_back(key);
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1);
    if (field) {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *field);
      if (error != std::errc() || end != value.data() + value.size() || *field < 1 || *field > most)
        fail(ErrorCode::invalid_argument, "ranks is '{}': '{}' is '{}', allowed is 1 to {}{}", text, key, value, most, planned);
    } else if (key == "shard") {
      layout.shard = is_second(text, key, std::string(value), "state", "weights") ? RankShard::weights : RankShard::state;
    } else {
      layout.rows = is_second(text, key, std::string(value), "shared", "dealt") ? ReplicaRows::dealt : ReplicaRows::shared;
    }
    if (more && rest.empty()) fail(ErrorCode::invalid_argument, "ranks is '{}': it ends in a comma, allowed is KEY=VALUE after each", text);
  }
  if (static_cast<long>(layout.tp) * layout.dp * layout.ep * layout.pp * layout.cp > most)
    fail(ErrorCode::invalid_argument, "ranks is '{}': {} x {} x {}{}{} ranks, allowed are at most {} in all{}", text, layout.tp, layout.dp, layout.ep,
         layout.pp > 1 ? fmt::format(" x {}", layout.pp) : "", layout.cp > 1 ? fmt::format(" x {}", layout.cp) : "", most, planned);
  check_rows(text, layout);
  return layout;
}
}  // namespace

RankLayout rank_layout(std::string_view text) { return read_layout(text, kMostRanks); }

RankLayout planned_layout(std::string_view text) { return read_layout(text, kMostPlannedRanks); }

std::vector<int> planned_ranks(const RankLayout& layout) {
  std::vector<int> ranks;
  if (layout.size() <= kMostRanks) {
    for (int rank = 0; rank < layout.size(); ++rank) ranks.push_back(rank);
    return ranks;
  }
  constexpr int kFirstStages = 7;
  std::set<int> stages{layout.pp - 1};
  for (int stage = 0; stage < std::min(layout.pp, kFirstStages); ++stage) stages.insert(stage);
  for (const int data : std::set<int>{0, layout.cp - 1, layout.data() - 1})
    for (const int stage : stages)
      for (const int model : std::set<int>{0, layout.model() - 1}) ranks.push_back(data * layout.replica() + stage * layout.model() + model);
  return ranks;
}

}  // namespace lockstep
