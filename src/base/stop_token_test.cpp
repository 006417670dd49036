#include "base/stop_token.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/signals.h"

namespace lockstep {
namespace {

TEST(StopToken, TellsOfItsOwnSourceAlone) {
  StopSource source, other;
  const StopToken never, token = source.token(), others = other.token();
  EXPECT_FALSE(token.stopped());
  token.throw_if_stopped();
  source.stop();
  EXPECT_TRUE(token.stopped());
  EXPECT_TRUE(source.token().stopped());
  for (const StopToken& t : {never, others, interrupt_token()}) {
    EXPECT_FALSE(t.stopped());
    EXPECT_NO_THROW(t.throw_if_stopped());
  }
  try {
    token.throw_if_stopped();
    FAIL() << "it was stopped";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
    EXPECT_EQ(e.message(), "stopped");
  }
}

TEST(StopToken, OutlivesItsSource) {
  StopToken token;
  {
    StopSource source;
    token = source.token();
    source.stop();
  }
  EXPECT_TRUE(token.stopped());
}

}  // namespace
}  // namespace lockstep
