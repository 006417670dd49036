#include "base/log.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(Log, LineHoldsLevelMessageAndFields) {
  EXPECT_EQ(format_log_line(LogLevel::info, "checkpoint saved", {{"step", 40}, {"seconds", 0.25}, {"path", "runs/a"}}),
            "info    checkpoint saved  step=40 seconds=0.25 path=runs/a");
  EXPECT_EQ(format_log_line(LogLevel::error, "stopped", {}), "error   stopped");
}

TEST(Log, ValuesThatWouldBreakTheLineAreQuotedAndEscaped) {
  const std::string text = "a b=\"c\"\nerror forged \x1b[2J";
  EXPECT_EQ(format_log_line(LogLevel::info, "x\ny", {{"text", text}, {"empty", ""}}),
            "info    x\\ny  text=\"a b=\\\"c\\\"\\nerror forged \\x1b[2J\" empty=\"\"");
}

TEST(Log, SecretsAreNotWritten) {
  const LogFields fields = {{"Authorization", "Bearer abc"}, {"x-api-key", "abc"}, {"tokens", 7}};
  const std::string line = format_log_line(LogLevel::info, "request", fields);
  EXPECT_EQ(line.find("abc"), std::string::npos) << line;
  EXPECT_NE(line.find("tokens=7"), std::string::npos) << line;
}

TEST(Log, LevelFilters) {
  const LogLevel before = log_level();
  testing::internal::CaptureStderr();
  set_log_level(LogLevel::error);
  log_info("not written");
  log_error("written");
  const std::string output = testing::internal::GetCapturedStderr();
  set_log_level(before);
  EXPECT_EQ(output.find("not written"), std::string::npos);
  EXPECT_NE(output.find("error   written\n"), std::string::npos);
}

TEST(Log, LevelNames) {
  EXPECT_EQ(parse_log_level("warning"), LogLevel::warning);
  try {
    parse_log_level("warnin");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(e.message().find("did you mean 'warning'?"), std::string::npos) << e.message();
  }
}

}  // namespace
}  // namespace lockstep
