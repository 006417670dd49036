#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <functional>

#include "base/error.h"
#include "launch/child_process_test_tools.h"

namespace lockstep {
namespace {

TEST(ChildProcess, WordsAreHandedOverAsTheyAre) {
  ChildProcess child({"sh", "-c", "printf '%s\\n' \"$@\" >&2; printf unfinished >&2; exit 7", "x", "a b", "$HOME", "`id`;'"});
  EXPECT_EQ(all_lines(child), (std::vector<std::string>{"a b", "$HOME", "`id`;'", "unfinished"}));
  EXPECT_EQ(child.ended(), 7);
}

TEST(ChildProcess, ItsEnvironmentIsOursWithMore) {
  ASSERT_EQ(setenv("LOCKSTEP_TEST_OWN", "own", 1), 0);
  ASSERT_EQ(setenv("LOCKSTEP_TEST_OTHER", "before", 1), 0);
  ChildProcess child({"sh", "-c", "echo $LOCKSTEP_TEST_OWN $LOCKSTEP_TEST_OTHER $LOCKSTEP_TEST_NEW >&2"},
                     {.environment = {"LOCKSTEP_TEST_OTHER=now", "LOCKSTEP_TEST_NEW=new"}});
  EXPECT_EQ(all_lines(child), (std::vector<std::string>{"own now new"}));
}

TEST(ChildProcess, ASignalIsItsStatusAndLeavesOtherProcessesAlone) {
  ChildProcess child({"sleep", "100"});
  EXPECT_FALSE(child.ended());
  EXPECT_NE(getpgid(child.pid()), getpgid(0)) << "Ctrl-C would reach it";
  child.signal(SIGTERM);
  all_lines(child);
  EXPECT_EQ(child.ended(), 128 + SIGTERM);
}

TEST(ChildProcess, NobodyOutlivesIt) {
  pid_t pid = 0;
  {
    ChildProcess child({"sleep", "100"});
    pid = child.pid();
  }
  EXPECT_NE(kill(pid, 0), 0);
}

TEST(ChildProcess, AProgramThatIsNotThereIsNamed) {
  try {
    ChildProcess child({"no-such-program-here"});
    FAIL() << "it was started";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::not_found);
    EXPECT_NE(std::string(e.what()).find("no-such-program-here"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
