#include "http/http_test_tools.h"

namespace lockstep {
namespace {

using Http = HttpTest;

TEST_F(Http, OneCall) {
  serve();
  const HttpReply reply = http_call({.method = "POST", .port = server_->port(), .path = "/echo?a=b", .body = "hello"});
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "POST|a=b|hello");
  EXPECT_EQ(http_call({.port = server_->port(), .path = "/none"}).status, 404);
  EXPECT_EQ(server_->url(), fmt::format("http://127.0.0.1:{}", server_->port()));
}

TEST_F(Http, KeepAliveAndPipelining) {
  serve();
  RawSocket socket(server_->port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(socket.say("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"));
    EXPECT_NE(socket.hear("GET||").find("200 OK"), std::string::npos);
  }
  std::string many;
  for (int i = 0; i < 50; ++i) many += fmt::format("GET /echo?{} HTTP/1.1\r\nHost: x\r\n\r\n", i);
  many += "GET /echo?last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  ASSERT_TRUE(socket.say(many));
  const std::string answers = socket.hear();
  EXPECT_TRUE(socket.closed());
  std::size_t at = 0;
  for (int i = 0; i < 50; ++i) {
    at = answers.find(fmt::format("GET|{}|", i), at);
    ASSERT_NE(at, std::string::npos) << i;  // in order
  }
  EXPECT_EQ(api_->requests, 54);
}

TEST_F(Http, StreamsInChunks) {
  serve();
  const std::string answer = raw("GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(answer.find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("7\r\npart 0\n\r\n7\r\npart 1\n\r\n7\r\npart 2\n\r\n0\r\n\r\n")) << answer;
  EXPECT_EQ(http_call({.port = server_->port(), .path = "/stream"}).body, "part 0\npart 1\npart 2\n");
  const std::string old = raw("GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(old.ends_with("\r\n\r\npart 0\npart 1\npart 2\n")) << old;
  EXPECT_EQ(old.find("chunked"), std::string::npos);
}

TEST_F(Http, BytesOneByOneAndChunkedBodies) {
  serve();
  RawSocket socket(server_->port());
  for (const char c : std::string("POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc")) {
    ASSERT_TRUE(socket.say({&c, 1}));
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  EXPECT_NE(socket.hear().find("POST||abc"), std::string::npos);
  EXPECT_NE(raw("POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n").find("POST||abc"),
            std::string::npos);
}

TEST_F(Http, Expect100Continue) {
  serve();
  RawSocket socket(server_->port());
  ASSERT_TRUE(socket.say("POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"));
  EXPECT_NE(socket.hear("\r\n\r\n").find("100 Continue"), std::string::npos);
  ASSERT_TRUE(socket.say("abc"));
  EXPECT_NE(socket.hear().find("POST||abc"), std::string::npos);
}

TEST_F(Http, HeadHasNoBody) {
  serve();
  const std::string answer = raw("HEAD /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(answer.find("404 Not Found"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

TEST_F(Http, MalformedRequestsGet400) {
  serve();
  for (const std::string text :
       {"nonsense\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nbad header\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}) {
    const std::string answer = raw(text);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 Bad Request\r\n")) << text << "\n" << answer;
    EXPECT_NE(answer.find(R"({"error":{"message":")"), std::string::npos);
  }
  EXPECT_EQ(api_->requests, 0);
}

TEST_F(Http, OversizedHeadersAndBodies) {
  serve({.max_header_bytes = 2048, .max_body_bytes = 1000});
  EXPECT_TRUE(raw("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(5000, 'a') + "\r\n\r\n").starts_with("HTTP/1.1 431 "));
  EXPECT_TRUE(raw("GET /" + std::string(100000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 431 "));
  EXPECT_TRUE(raw(std::string(100000, '\n')).starts_with("HTTP/1.1 4"));
  EXPECT_TRUE(raw("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n").starts_with("HTTP/1.1 413 "));
  // The answer is heard though much more is on its way.
  EXPECT_TRUE(raw("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n" + std::string(2000000, 'a')).starts_with("HTTP/1.1 413 "));
  EXPECT_TRUE(raw("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, 'a') + "\r\n0\r\n\r\n")
                  .starts_with("HTTP/1.1 413 "));
  EXPECT_EQ(api_->requests, 0);
  EXPECT_EQ(http_call({.method = "POST", .port = server_->port(), .path = "/echo", .body = std::string(1000, 'b')}).status, 200);
}

TEST_F(Http, SlowRequestsRunOut) {
  serve({.idle_seconds = 0.2});
  EXPECT_EQ(raw(""), "");
  serve({.header_seconds = 0.2, .body_seconds = 0.2});  // who is slow to begin may be so
  EXPECT_TRUE(raw("GET / HTT").starts_with("HTTP/1.1 408 "));
  EXPECT_TRUE(raw("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc").starts_with("HTTP/1.1 408 "));
}

TEST_F(Http, ADroppedRequestIsAnswered) {
  serve();
  EXPECT_EQ(http_call({.port = server_->port(), .path = "/drop"}).status, 500);
}

TEST_F(Http, AClientThatLeavesIsNoticed) {
  serve();
  RawSocket socket(server_->port());
  ASSERT_TRUE(socket.say("GET /held HTTP/1.1\r\nHost: x\r\n\r\n"));
  const auto responder = api_->take();
  socket.close();
  EXPECT_TRUE(abandoned_within_seconds(1));
  // Who asks later is told at once; an answer, however late, disturbs nobody.
  bool told = false;
  responder->on_abandoned([&] { told = true; });
  EXPECT_FALSE(told);  // its answer was sent on the way
  responder->send({200, "text/plain", "late", {}});
  responder->stream("later");
  responder->end_stream();
  EXPECT_EQ(http_call({.port = server_->port(), .path = "/echo"}).status, 200);
}

TEST_F(Http, AStreamThatNobodyReadsEnds) {
  serve({.max_pending_bytes = 1 << 20});
  RawSocket socket(server_->port());
  ASSERT_TRUE(socket.say("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n"));
  const auto responder = api_->take();
  for (int i = 0; i < 2000 && api_->abandoned == 0; ++i) {
    responder->stream(std::string(100000, 'x'));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(api_->abandoned, 1);
  responder->end_stream();
}

TEST_F(Http, StopLetsRunningRequestsFinish) {
  serve({.stop_seconds = 20});
  RawSocket idle(server_->port()), fresh(server_->port()), busy(server_->port());
  ASSERT_TRUE(idle.say("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"));
  EXPECT_TRUE(idle.hear("abc").ends_with("abc"));
  ASSERT_TRUE(busy.say("GET /held HTTP/1.1\r\nHost: x\r\n\r\n"));
  const auto responder = api_->take();
  const std::uint16_t port = server_->port();
  std::thread stopping([&] { server_->stop(); });
  EXPECT_EQ(idle.hear(), "");
  EXPECT_TRUE(idle.closed());
  ASSERT_TRUE(fresh.say("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"));  // its client cannot know, and would take an end for a fault
  EXPECT_TRUE(fresh.hear().starts_with("HTTP/1.1 503 "));
  const std::string late = raw("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");  // told, not merely refused
  EXPECT_TRUE(late.starts_with("HTTP/1.1 503 ")) << late;
  EXPECT_NE(late.find("Retry-After: 1"), std::string::npos);
  EXPECT_NE(late.find("Connection: close"), std::string::npos);
  responder->send({200, "text/plain", "finished", {}});
  const std::string answer = busy.hear();
  EXPECT_NE(answer.find("finished"), std::string::npos);
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  stopping.join();
  EXPECT_EQ(api_->abandoned, 0);
  EXPECT_THROW(http_call({.port = port, .path = "/echo", .timeout_seconds = 5}), Error);
  server_->stop();
}

TEST_F(Http, StopAbandonsWhatTakesTooLong) {
  serve({.stop_seconds = 0.1});
  RawSocket polite(server_->port()), silent(server_->port());
  ASSERT_TRUE(polite.say("GET /held HTTP/1.1\r\nHost: x\r\n\r\n"));
  const auto first = api_->take();
  ASSERT_TRUE(silent.say("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n"));
  const auto second = api_->take();
  const auto begin = std::chrono::steady_clock::now();
  server_->stop();
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 8);
  EXPECT_EQ(api_->abandoned, 2);
  EXPECT_TRUE(first->abandoned_by_server());
  EXPECT_NE(polite.hear().find("stopping"), std::string::npos);
  second->stream("after the end");
  server_.reset();
  first->send({200, "text/plain", "after the server", {}});
  second->end_stream();
}

TEST_F(Http, ManyClients) {
  serve();
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i)
        good += http_call({.method = "POST", .port = server_->port(), .path = "/echo", .body = fmt::format("{}.{}", t, i)}).body ==
                fmt::format("POST||{}.{}", t, i);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 200);
}

TEST_F(Http, TooManyConnections) {
  serve({.max_connections = 2});
  RawSocket a(server_->port()), b(server_->port());
  for (RawSocket* socket : {&a, &b}) {
    ASSERT_TRUE(socket->say("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"));
    socket->hear("GET||");
  }
  EXPECT_TRUE(raw("").starts_with("HTTP/1.1 503 "));
}

// Who holds connections and asks for nothing keeps nobody out.
TEST_F(Http, ConnectionsThatRestGiveWay) {
  serve({.max_connections = 3, .rest_seconds = 0.2});
  RawSocket silent(server_->port()), slow(server_->port()), used(server_->port());
  ASSERT_TRUE(slow.say("GET /echo HTTP/1.1\r\nHo"));
  ASSERT_TRUE(used.say("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"));
  used.hear("GET||");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto asks = [](RawSocket& socket) {
    ASSERT_TRUE(socket.say("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"));
    socket.hear("GET||");
  };
  RawSocket first(server_->port());
  asks(first);
  RawSocket second(server_->port());
  asks(second);
  asks(first);
  EXPECT_EQ(silent.hear(), "");
  EXPECT_EQ(slow.hear(), "");
  RawSocket third(server_->port());
  asks(third);
  EXPECT_EQ(used.hear(), "");
  asks(second);
}

// A server is stopped at any moment of its timer, which ticks every 50 ms. A tick that was due just then once kept the server's state for ever.
TEST_F(Http, NothingStaysBehindAStop) {
  serve();
  server_.reset();
  const auto without = api_.use_count();
  for (int i = 0; i < 40; ++i) {
    serve();
    std::this_thread::sleep_for(std::chrono::microseconds(49'000 + 50 * i));
    server_.reset();
    ASSERT_EQ(api_.use_count(), without) << "after " << i;
  }
}

TEST_F(Http, PlacesThatCannotBeListenedOn) {
  serve();
  EXPECT_THROW(HttpServer(api_, {.port = server_->port()}), Error);
  EXPECT_THROW(HttpServer(api_, {.host = "not an address", .port = 0}), Error);
  EXPECT_THROW(HttpServer(api_, {.port = 70000}), Error);
  EXPECT_THROW(http_call({.host = "not an address", .port = 1}), Error);
}

}  // namespace
}  // namespace lockstep
