// What happens to the delimiters that a pattern matches in a text: removed, isolated as pieces, or merged with a neighbour.
//   split_text(Behavior::isolated, text.size(), false, matches_of, [&](TextRange piece) { ... });
// Knows no patterns. Thread-safe (pure functions).
#pragma once
#include <string>
#include <vector>

#include "text/text_range.h"
#include "text/tokenizer/json_object.h"

namespace lockstep {

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// unsupported when the key is none of the five names; `otherwise` when it is absent.
Behavior read_behavior(JsonObject& object, const char* key, std::optional<Behavior> otherwise = {});

// A delimiter, or what lies between two. Empty ones stay, for they part their neighbours.
struct Segment {
  std::size_t begin, end;
  bool delimiter;
};
// For the three behaviours that look at neighbours.
std::vector<TextRange> join_segments(Behavior behavior, const std::vector<Segment>& segments);

// for_each_match(f) calls f(TextRange) for the matches in order; emit(TextRange) gets the pieces, some maybe empty.
// invert: the matches are what is kept and the rest are the delimiters.
template <class Matches, class Emit>
void split_text(Behavior behavior, std::size_t size, bool invert, Matches&& for_each_match, Emit&& emit) {
  std::size_t at = 0;
  if (behavior == Behavior::isolated || behavior == Behavior::removed) {
    const bool keep_matches = behavior == Behavior::isolated || invert, keep_rest = behavior == Behavior::isolated || !invert;
    for_each_match([&](const TextRange& match) {
      if (keep_rest && match.begin != at) emit(TextRange{at, match.begin});
      if (keep_matches) emit(match);
      at = match.end;
    });
    if (keep_rest && at != size) emit(TextRange{at, size});
    return;
  }
  std::vector<Segment> segments;
  for_each_match([&](const TextRange& match) {
    if (match.begin != at) segments.push_back({at, match.begin, invert});
    segments.push_back({match.begin, match.end, !invert});
    at = match.end;
  });
  if (at != size) segments.push_back({at, size, invert});
  for (const TextRange& piece : join_segments(behavior, segments)) emit(piece);
}

}  // namespace lockstep
