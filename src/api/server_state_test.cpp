#include "api/server_state.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ServerStateTest, CountsByRouteMethodAndStatus) {
  ServerState state;
  state.end({.route = "/v1/models", .method = "GET", .status = 200, .seconds = 0.001});
  state.end({.route = "/v1/models", .method = "GET", .status = 200, .seconds = 0.001});
  state.end({.route = "/v1/completions", .method = "POST", .status = 200, .seconds = 1, .first_byte_seconds = 0.5, .left = true});
  state.end({.route = "other", .method = "A METHOD OF THE CLIENT'S", .status = 404});
  PrometheusText text;
  state.append_metrics(text);
  const std::string scrape = text.take();
  EXPECT_NE(scrape.find(R"(lockstep_http_requests_total{route="/v1/models",method="GET",status="200"} 2)"), std::string::npos) << scrape;
  EXPECT_NE(scrape.find(R"(lockstep_http_requests_total{route="other",method="other",status="404"} 1)"), std::string::npos);
  EXPECT_NE(scrape.find(R"(lockstep_http_first_byte_seconds_count{route="/v1/completions"} 1)"), std::string::npos);
  EXPECT_NE(scrape.find(R"(lockstep_http_clients_left_total{route="/v1/completions"} 1)"), std::string::npos);
  EXPECT_EQ(scrape.find("CLIENT'S"), std::string::npos);
}

TEST(ServerStateTest, RetryAfterGrowsWithTheQueue) {
  ServerState state;
  EXPECT_EQ(state.retry_after_seconds(), 1);
  state.open_requests = 4;
  for (int i = 0; i < 3; ++i) state.end({.route = "r", .method = "POST", .status = 200, .seconds = 20});
  EXPECT_EQ(state.retry_after_seconds(), 5);  // 20 s a request, 4 at a time
  for (int i = 0; i < 3; ++i) state.end({.route = "r", .method = "POST", .status = 429});
  EXPECT_EQ(state.retry_after_seconds(), 20);  // and three others wait
  for (int i = 0; i < 1000; ++i) state.end({.route = "r", .method = "POST", .status = 429});
  EXPECT_EQ(state.retry_after_seconds(), 60);
}

}  // namespace
}  // namespace lockstep
