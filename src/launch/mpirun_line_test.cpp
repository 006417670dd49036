#include "launch/mpirun_line.h"

#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include <algorithm>

#include "launch/child_process_test_tools.h"

namespace lockstep {
namespace {

using LineWords = std::vector<std::string>;

TEST(MpirunLine, TakesTheFirstSlotsInOrder) {
  const std::vector<Host> hosts{{"a", 2}, {"b", 3}};
  EXPECT_EQ(hosts_taken(hosts, 1), (std::vector<Host>{{"a", 1}}));
  EXPECT_EQ(hosts_taken(hosts, 4), (std::vector<Host>{{"a", 2}, {"b", 2}}));
  EXPECT_EQ(hosts_taken(hosts, 5), hosts);
}

TEST(MpirunLine, SaysHostsProcessesAndTheLayoutBehindTheArguments) {
  const LaunchProgram program{.agent = "my-agent -q", .options = {"--mca", "btl", "^openib"}, .program = {"/opt/lockstep", "train", "sft", "--name", "a b"}};
  const LaunchLayout layout{.ranks = {.tp = 2, .dp = 2}, .processes = 3};
  EXPECT_EQ(mpirun_line(program, {{"a", 2}, {"b", 2}}, layout, true), (LineWords{"mpirun",
                                                                                 "--host",
                                                                                 "a:2,b:1",
                                                                                 "-n",
                                                                                 "3",
                                                                                 "--map-by",
                                                                                 "slot",
                                                                                 "--bind-to",
                                                                                 "none",
                                                                                 "--enable-recovery",
                                                                                 "-x",
                                                                                 "LOCKSTEP_LAUNCH=1",
                                                                                 "--mca",
                                                                                 "plm",
                                                                                 "rsh",
                                                                                 "--mca",
                                                                                 "plm_rsh_agent",
                                                                                 "my-agent -q",
                                                                                 "--mca",
                                                                                 "btl",
                                                                                 "^openib",
                                                                                 "/opt/lockstep",
                                                                                 "train",
                                                                                 "sft",
                                                                                 "--name",
                                                                                 "a b",
                                                                                 "--transport",
                                                                                 "mpi",
                                                                                 "--ranks",
                                                                                 "tp=2,dp=2,ep=1",
                                                                                 "--resume"}));
  const LineWords first = mpirun_line(program, {{"a", 2}, {"b", 2}}, layout, false);
  EXPECT_EQ(first.back(), "tp=2,dp=2,ep=1");
  const LineWords third = mpirun_line(program, {{"a", 2}, {"b", 2}}, layout, true, 3);
  EXPECT_NE(std::find(third.begin(), third.end(), "LOCKSTEP_LAUNCH=3"), third.end());
}

TEST(MpirunLine, OnlyAnotherMachineIsAsked) {
  EXPECT_TRUE(asking_line({}, "localhost").empty());
  EXPECT_EQ(asking_line({}, "b"), (LineWords{"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "b", "true"}));
  EXPECT_EQ(asking_line({.agent = " my-agent  -q "}, "b"), (LineWords{"my-agent", "-q", "b", "true"}));
}

// A shell gives back the same words.
TEST(MpirunLine, IsShownAsAShellReadsIt) {
  const LineWords words{"a", "", "b c", "it's", "$HOME", "x=1,y", "*", "line\nfeed"};
  ChildProcess shell({"sh", "-c", "set -- " + shell_text(words) + "; for w in \"$@\"; do printf '[%s]' \"$w\" >&2; done"});
  EXPECT_EQ(fmt::format("{}", fmt::join(all_lines(shell), "\n")), "[a][][b c][it's][$HOME][x=1,y][*][line\nfeed]");
  EXPECT_EQ(shell_text({"a", "x=1,y"}), "a x=1,y") << "nothing is quoted that need not be";
}

}  // namespace
}  // namespace lockstep
