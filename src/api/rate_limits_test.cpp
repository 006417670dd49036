#include "api/rate_limits.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(RateLimits, TokensThatWereUsedBeyondTheAllowanceAreWaitedFor) {
  double now = 0;
  RateLimits rates([&] { return now; });
  rates.set({{"ann", {.tokens_per_minute = 600}}, {"bob", {.weight = 2}}});
  EXPECT_TRUE(rates.headers("bob").empty());
  EXPECT_FALSE(rates.take("bob") || rates.take("nobody"));
  EXPECT_EQ(rates.headers("ann"),
            (HeaderList{{"x-ratelimit-limit-tokens", "600"}, {"x-ratelimit-remaining-tokens", "600"}, {"x-ratelimit-reset-tokens", "0ms"}}));
  rates.use("ann", 100);
  EXPECT_FALSE(rates.take("ann"));
  rates.use("ann", 1100);  // a long answer: it was begun while there was room
  const auto refused = rates.take("ann");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_NE(refused->body.find("this API key has used 1200 tokens of this minute, allowed are 600 a minute (tokens_per_minute in the key file)"),
            std::string::npos);
  EXPECT_EQ(refused->headers.at(0), (std::pair<std::string, std::string>("Retry-After", "61")));  // 600 and one at ten a second
  EXPECT_EQ(rates.headers("ann").at(2), (std::pair<std::string, std::string>("x-ratelimit-reset-tokens", "2m0s")));
  now = 60;
  EXPECT_TRUE(rates.refusal("ann"));
  now = 60.1;
  EXPECT_FALSE(rates.refusal("ann"));
  now = 1000;
  EXPECT_EQ(rates.headers("ann").at(1).second, "600");  // a minute's at most
}

// A key file that is read again gives nobody a new minute.
TEST(RateLimits, WhatWasUsedStaysUsed) {
  double now = 0;
  RateLimits rates([&] { return now; });
  rates.set({{"ann", {.requests_per_minute = 3}}});
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(rates.take("ann"));
  rates.set({{"ann", {.requests_per_minute = 6}}});
  EXPECT_TRUE(rates.take("ann"));
  now = 10;
  EXPECT_FALSE(rates.take("ann"));
  EXPECT_TRUE(rates.take("ann"));
  PrometheusText text;
  rates.append_metrics(text);
  EXPECT_NE(text.take().find("lockstep_rate_left{key=\"ann\",limit=\"requests\"} 0"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
