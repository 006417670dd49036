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

TEST(Log, LinesOfJson) {
  const std::string line = format_json_log_line(LogLevel::info, "a \"request\"\n",
                                                {{"id", "r\\1\x01"},
                                                 {"status", 200},
                                                 {"ms", 0.5},
                                                 {"left", false},
                                                 {"text", "\xC3\xA9\xFF\xED\xA0\x80"},
                                                 {"api_key", "sesame"},
                                                 {"infinite", 1e300 * 1e300}},
                                                "2026-01-31T12:00:00.123Z");
  EXPECT_EQ(line, R"({"time":"2026-01-31T12:00:00.123Z","level":"info","message":"a \"request\"\u000a","id":"r\\1\u0001","status":200,"ms":0.5,)"
                  "\"left\":false,\"text\":\"\xC3\xA9????\",\"api_key\":\"(secret)\",\"infinite\":\"inf\"}");
  EXPECT_EQ(parse_log_format("json"), LogFormat::json);
  EXPECT_THROW(parse_log_format("jason"), Error);
}

}  // namespace
}  // namespace lockstep
