#include "serving/stop_strings.h"

#include <gtest/gtest.h>

#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/growth_test_tools.h"

namespace lockstep {
namespace {

using Found = std::optional<std::pair<std::size_t, std::size_t>>;  // where a stop string stands in the whole text: begin, end

Found found_in_pieces(const std::vector<std::string>& stops, const std::vector<std::string>& pieces, std::size_t* waits = nullptr) {
  StopSearch search(std::make_shared<const StopStrings>(stops));
  std::size_t before = 0;
  for (const std::string& piece : pieces) {
    if (const auto found = search.push(piece)) return {{before + found->end - found->length, before + found->end}};
    before += piece.size();
  }
  if (waits != nullptr) *waits = search.waits();
  return {};
}

// The definition, by looking at every end of the text.
Found found_slowly(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops)
      if (stop.size() > longest && std::string_view(text).substr(0, end).ends_with(stop)) longest = stop.size();
    if (longest > 0) return {{end - longest, end}};
  }
  return {};
}

TEST(StopStrings, TheFirstThatIsWholeAndOfTwoTheLonger) {
  EXPECT_EQ(found_in_pieces({"cd", "bcde"}, {"abcdef"}), (Found{{2, 4}}));
  EXPECT_EQ(found_in_pieces({"d", "bcd"}, {"ab", "cdef"}), (Found{{1, 4}}));
  EXPECT_EQ(found_in_pieces({"aab"}, {"aaa", "b"}), (Found{{1, 4}}));
  EXPECT_EQ(found_in_pieces({"", "x"}, {"abc"}), Found{});
  EXPECT_EQ(found_in_pieces({}, {"abc"}), Found{});
}

TEST(StopStrings, WhatMayBeginOneWaits) {
  std::size_t waits = 9;
  EXPECT_FALSE(found_in_pieces({"\n\n", "User:"}, {"well", "\nUse"}, &waits));
  EXPECT_EQ(waits, 3u);
  EXPECT_FALSE(found_in_pieces({"\n\n", "User:"}, {"well", "\n"}, &waits));
  EXPECT_EQ(waits, 1u);
}

RC_GTEST_PROP(StopStrings, AnyStopsAnyPieces, ()) {
  const auto letters = rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
  const auto stops = *rc::gen::container<std::vector<std::string>>(letters);
  const auto pieces = *rc::gen::container<std::vector<std::string>>(letters);
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  std::size_t waits = 0;
  const Found found = found_in_pieces(stops, pieces, &waits);
  RC_ASSERT(found == found_slowly(stops, text));
  if (found) return;
  std::size_t longest = 0;
  for (const std::string& stop : stops)
    for (std::size_t n = 1; n < stop.size(); ++n)
      if (n > longest && text.ends_with(std::string_view(stop).substr(0, n))) longest = n;
  RC_ASSERT(waits == longest);
}

// Text that almost is a stop string at every byte, a byte a token: each byte is looked at a few times, not once for each that waits. Stop strings as
// long as the text, and as many as it has bytes.
TEST(StopStrings, WorkGrowsWithTheTextAlone) {
  const auto read = [](const std::vector<std::string>& stops, std::size_t size) {
    StopSearch search(std::make_shared<const StopStrings>(stops));
    for (std::size_t i = 0; i < size; ++i) ASSERT_FALSE(search.push("a"));
  };
  const auto sized = [](std::size_t size) { return size; };
  const auto one = [&](std::size_t size) { read({std::string(1000, 'a') + "b"}, size); };
  const auto as_long = [&](std::size_t size) { read({std::string(size / 2, 'a') + "b", std::string(size / 3, 'a') + "c"}, size); };
  const auto names = [](std::size_t size) {
    std::vector<std::string> stops;
    for (std::size_t i = 0; i < size; ++i) stops.push_back("aaa" + std::to_string(i));
    return stops;
  };
  const auto as_many = [&](const std::vector<std::string>& stops) { read(stops, stops.size()); };
  EXPECT_LT(growth(sized, one, 5'000), kLinearGrowth);
  EXPECT_LT(growth(sized, as_long, 1'000), kLinearGrowth);
  EXPECT_LT(growth(names, as_many, 2'000), kLinearGrowth);
}

TEST(StopStrings, FoundBehindWhatAlmostWasOne) {
  const std::string stop = std::string(1000, 'a') + "b";
  StopSearch search(std::make_shared<const StopStrings>(std::vector<std::string>{stop, stop.substr(1)}));
  for (int i = 0; i < 2000; ++i) ASSERT_FALSE(search.push("a"));
  EXPECT_EQ(search.waits(), 1000u);
  EXPECT_EQ(search.push("b")->length, stop.size());
}

}  // namespace
}  // namespace lockstep
