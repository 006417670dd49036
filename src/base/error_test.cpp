#include "base/error.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// What is proposed is what was probably meant: a slip of the fingers, or the beginning of a word. Of a short word another short word is neither.
TEST(DidYouMean, ProposesSlipsAndBeginnings) {
  const std::vector<std::string> options = {"--help",  "--isa", "--temperature", "--top-p", "--top-k", "--max-tokens",
                                            "--model", "/set",  "train",         "chat",    "sft"};
  for (const auto& [got, meant] : {std::pair{"--modle", "--model"},
                                   {"-model", "--model"},
                                   {"--temp", "--temperature"},
                                   {"--max-token", "--max-tokens"},
                                   {"--max-tokenz", "--max-tokens"},
                                   {"stf", "sft"},
                                   {"trian", "train"},
                                   {"/sett", "/set"}})
    EXPECT_EQ(did_you_mean(got, options), fmt::format("; did you mean '{}'?", meant)) << got;
  for (const char* got : {"--lr", "run", "list", "pull", "/bye", "-v", "--", "", "x", "--verbose"}) EXPECT_EQ(did_you_mean(got, options), "") << got;
  EXPECT_EQ(did_you_mean(std::string(101, 'x'), {std::string(101, 'x')}), "");
}

}  // namespace
}  // namespace lockstep
