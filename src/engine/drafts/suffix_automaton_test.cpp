// Longest repetitions against a search of all of them.
#include "engine/drafts/suffix_automaton.h"

#include <gtest/gtest.h>

#include "base/philox.h"

namespace lockstep {
namespace {

// How long the longest end of `read` is that ends in text[0..end) at a place before `end`.
std::int32_t longest_end(std::span<const std::int32_t> text, std::span<const std::int32_t> read) {
  std::int32_t longest = 0;
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::int32_t length = 0;
    while (static_cast<std::size_t>(length) < std::min(end, read.size()) &&
           text[end - 1 - static_cast<std::size_t>(length)] == read[read.size() - 1 - static_cast<std::size_t>(length)])
      ++length;
    longest = std::max(longest, length);
  }
  return longest;
}

bool ends_with(std::span<const std::int32_t> text, std::int32_t end, std::span<const std::int32_t> read, std::int32_t length) {
  for (std::int32_t i = 0; i < length; ++i)
    if (text[static_cast<std::size_t>(end - i)] != read[read.size() - 1 - static_cast<std::size_t>(i)]) return false;
  return true;
}

TEST(SuffixAutomaton, FindsTheLongestRepetition) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    RandomSequence draws(seed, RandomStream::fuzz);
    const std::uint32_t letters = 1 + draws.below(4);
    SuffixAutomaton automaton;
    std::vector<std::int32_t> text, others;
    SuffixAutomaton::Match at;
    for (int i = 0; i < 70; ++i) {
      text.push_back(static_cast<std::int32_t>(draws.below(letters)));
      automaton.append(text.back());
      const SuffixAutomaton::Match& match = automaton.repeated();
      EXPECT_EQ(match.length, longest_end(std::span(text).first(text.size() - 1), text)) << seed << " " << i;
      if (match.length > 0) {
        EXPECT_LT(match.end, i);
        EXPECT_TRUE(ends_with(text, match.end, text, match.length)) << seed << " " << i;
      }
    }
    EXPECT_LE(automaton.states(), 2 * text.size());
    for (int i = 0; i < 70; ++i) {
      others.push_back(static_cast<std::int32_t>(draws.below(letters + 1)));
      at = automaton.advance(at, others.back());
      EXPECT_EQ(at.length, longest_end(text, others)) << seed << " " << i;
      if (at.length > 0) {
        EXPECT_TRUE(ends_with(text, at.end, others, at.length)) << seed << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
