#include "text/tokenizer/split_behavior.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "text/utf8.h"

namespace lockstep {
namespace {
constexpr std::array<std::pair<std::string_view, Behavior>, 5> kBehaviors = {{{"Removed", Behavior::removed},
                                                                              {"Isolated", Behavior::isolated},
                                                                              {"MergedWithPrevious", Behavior::merged_with_previous},
                                                                              {"MergedWithNext", Behavior::merged_with_next},
                                                                              {"Contiguous", Behavior::contiguous}}};
}  // namespace

Behavior read_behavior(JsonObject& object, const char* key, std::optional<Behavior> otherwise) {
  if (!object.has(key) && otherwise) {
    object.any(key);
    return *otherwise;
  }
  const std::string name = object.text(key);
  std::vector<std::string> names;
  for (const auto& [candidate, behavior] : kBehaviors) {
    if (candidate == name) return behavior;
    names.emplace_back(candidate);
  }
  fail(ErrorCode::unsupported, "{} is '{}', allowed is {}{}", object.path(key), utf8_excerpt(name), fmt::join(names, ", "), did_you_mean(name, names));
}

std::vector<TextRange> join_segments(Behavior behavior, const std::vector<Segment>& segments) {
  std::vector<TextRange> pieces;
  bool previous = false;
  if (behavior == Behavior::merged_with_next) {
    for (std::size_t i = segments.size(); i-- > 0;) {
      const Segment& s = segments[i];
      if (s.delimiter && !previous && !pieces.empty()) pieces.back().begin = s.begin;
      else pieces.push_back({s.begin, s.end});
      previous = s.delimiter;
    }
    std::reverse(pieces.begin(), pieces.end());
    return pieces;
  }
  for (const Segment& s : segments) {
    const bool joins = behavior == Behavior::contiguous ? s.delimiter == previous : s.delimiter && !previous;
    if (joins && !pieces.empty()) pieces.back().end = s.end;
    else pieces.push_back({s.begin, s.end});
    previous = s.delimiter;
  }
  return pieces;
}

}  // namespace lockstep
