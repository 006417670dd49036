#include "launch/launch_word.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep {
namespace {

TEST(LaunchWord, IsReadAsItIsWritten) {
  const LaunchWord word{3, true, 130, "process 1 (host \"b\", pid 7) ended\nwithout a word"};
  const std::string line = launch_line(word);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  for (const std::string& text : {line, "what another wrote " + line, line + "\r"}) {
    const std::optional<LaunchWord> read = read_launch_word(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->process, 3);
    EXPECT_TRUE(read->ended);
    EXPECT_EQ(read->status, 130);
    EXPECT_EQ(read->lost, word.lost);
  }
}

TEST(LaunchWord, AProcessKnowsTheNumberOfItsStart) {
  EXPECT_EQ(launch_start(), 0);
  EXPECT_FALSE(has_launcher());
  ::setenv(kLaunchVariable, "3", 1);
  EXPECT_EQ(launch_start(), 3);
  EXPECT_TRUE(has_launcher());
  ::unsetenv(kLaunchVariable);
}

TEST(LaunchWord, OtherLinesAreNone) {
  for (const char* line : {"", "error: x", "lockstep-launch", "lockstep-launch {", "lockstep-launch 3", "lockstep-launch {\"process\":1}",
                           "lockstep-launch {\"process\":\"1\",\"ended\":true,\"status\":0,\"lost\":\"\"}"})
    EXPECT_FALSE(read_launch_word(line)) << line;
}

}  // namespace
}  // namespace lockstep
