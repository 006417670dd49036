#include "base/choice.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const std::vector<std::string> kWords = {"none", "full", "adapter"};

TEST(Choice, HasThePlaceOfAWord) {
  for (std::size_t i = 0; i < kWords.size(); ++i) EXPECT_EQ(check_choice("critic", kWords[i], kWords), i);
}

// The whole sentence and its code, with a word that is near and without one.
TEST(Choice, RefusesAnyOther) {
  const auto refused = [](std::string_view got, ErrorCode code, const std::string& told) {
    try {
      check_choice("critic", got, kWords, code);
      ADD_FAILURE() << got << " is let pass";
    } catch (const Error& e) {
      EXPECT_EQ(e.message(), told);
      EXPECT_EQ(e.code(), code);
    }
  };
  refused("ful", ErrorCode::invalid_argument, "critic is 'ful', allowed are none, full, adapter; did you mean 'full'?");
  refused("", ErrorCode::invalid_argument, "critic is '', allowed are none, full, adapter");
  refused("Full stop", ErrorCode::unsupported, "critic is 'Full stop', allowed are none, full, adapter");
  EXPECT_THROW(check_choice("critic", "none", {}), Error);
}

// An end of any other sentence.
TEST(Choice, TellsWhatIsAllowed) {
  EXPECT_EQ(allowed_are("adaptor", kWords), "allowed are none, full, adapter; did you mean 'adapter'?");
  EXPECT_EQ(allowed_are("x", {"one"}), "allowed are one");
}

}  // namespace
}  // namespace lockstep
