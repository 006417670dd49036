#include "base/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(Signals, FirstSignalSetsTheFlagAndIsRemembered) {
  clear_interrupt();
  install_interrupt_handlers();
  EXPECT_FALSE(interrupted());
  EXPECT_NO_THROW(throw_if_interrupted());
  raise(SIGTERM);
  raise(SIGTERM);  // a second SIGTERM is the same wish
  EXPECT_TRUE(interrupted());
  EXPECT_EQ(interrupt_signal(), SIGTERM);
  try {
    throw_if_interrupted();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  clear_interrupt();
  EXPECT_FALSE(interrupted());
}

TEST(Signals, SecondCtrlCExitsAtOnce) {
  EXPECT_EXIT(
      {
        clear_interrupt();
        install_interrupt_handlers();
        raise(SIGINT);
        if (!interrupted()) _exit(1);
        raise(SIGINT);
        _exit(2);
      },
      testing::ExitedWithCode(130), "");
}

TEST(Signals, ASecondSigtermThatIsMeantExitsAtOnce) {
  EXPECT_EXIT(
      {
        clear_interrupt();
        install_interrupt_handlers();
        raise(SIGTERM);
        raise(SIGTERM);
        for (int i = 0; i < 6; ++i) usleep(100000);
        raise(SIGTERM);
        _exit(2);
      },
      testing::ExitedWithCode(143), "");
}

TEST(Signals, AHangUpStopsLikeSigtermUnlessItWasIgnored) {
  EXPECT_EXIT(
      {
        clear_interrupt();
        install_interrupt_handlers();
        raise(SIGHUP);
        if (interrupt_signal() != SIGHUP) _exit(1);
        for (int i = 0; i < 6; ++i) usleep(100000);
        raise(SIGHUP);  // a terminal that goes says so more than once
        _exit(interrupted() ? 7 : 2);
      },
      testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        clear_interrupt();
        signal(SIGHUP, SIG_IGN);
        install_interrupt_handlers();
        raise(SIGHUP);
        _exit(interrupted() ? 2 : 7);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace lockstep
