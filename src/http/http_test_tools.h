// Shared by http tests: an Api whose answers are selected by path, a client that sends arbitrary bytes, and a
// server on the loopback.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "api/server_state.h"
#include "base/error.h"
#include "http/client.h"
#include "http/server.h"

namespace lockstep {

// Answers in ways that tests ask for by path.
class TestApi : public Api {
 public:
  void handle(ApiRequest request, std::shared_ptr<Responder> responder) override {
    ++requests;
    if (request.path == "/echo") return responder->send({200, "text/plain", request.method + "|" + request.query + "|" + request.body, {}});
    if (request.path == "/drop") return;
    if (request.path == "/large") return responder->send({200, "text/plain", std::string(3 << 20, 'L'), {}});
    if (request.path == "/static") return responder->send({.content_type = "text/plain", .static_body = large()});
    if (request.path == "/stream") {
      responder->begin_stream("text/event-stream");
      for (int i = 0; i < 3; ++i) responder->stream(fmt::format("part {}\n", i));
      return responder->end_stream();
    }
    if (request.path == "/flood") {
      responder->begin_stream("text/plain");
      responder->on_abandoned([this] { ++abandoned; });
      const std::lock_guard lock(mutex);
      held.push_back(responder);
      return;
    }
    if (request.path == "/held") {
      responder->on_abandoned([this, weak = std::weak_ptr(responder)] {
        if (const auto r = weak.lock()) r->send({503, "text/plain", "stopping", {}});
        ++abandoned;  // who waits for that finds it answered
      });
      const std::lock_guard lock(mutex);
      held.push_back(responder);
      return;
    }
    responder->send(error_response(404, "nothing here"));
  }
  ApiResponse error_response(int status, std::string_view message) const override {
    return {status, "application/json", R"({"error":{"message":")" + std::string(message) + "\"}}", {}};
  }
  Examination examine(const ApiRequest& head) const override {
    if (head.path == "/throws") throw std::bad_alloc();
    Examination e{.route = head.path,
                  .headers = {{"X-Extra", "every answer"}},
                  .while_draining = head.path == "/while-draining",
                  .draining_status = head.path == "/elsewhere" ? 425 : 503};
    if (head.path == refuse_path) e.refusal = error_response(401, "no");
    return e;
  }
  static std::string_view large() {
    static const std::string text(1 << 20, 's');
    return text;
  }
  std::shared_ptr<Responder> take() {
    for (int i = 0; i < 2000; ++i) {
      {
        const std::lock_guard lock(mutex);
        if (!held.empty()) {
          auto one = held.back();
          held.pop_back();
          return one;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "no request was held";
    return nullptr;
  }
  std::mutex mutex;
  std::vector<std::shared_ptr<Responder>> held;
  std::atomic<int> requests = 0, abandoned = 0;
  std::string refuse_path;
};

// A client that says what it likes. Reads give up after 10 seconds.
class RawSocket {
 public:
  explicit RawSocket(std::uint16_t port, int receive_buffer = 0) : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const timeval limit{10, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~RawSocket() { close(); }
  RawSocket(const RawSocket&) = delete;
  bool say(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // Until `end` stands in what has come, or the server closes.
  std::string hear(std::string_view end = {}) {
    std::string text;
    char block[4096];
    while (end.empty() || text.find(end) == std::string::npos) {
      const ssize_t got = recv(descriptor_, block, sizeof block, 0);
      if (got <= 0) {
        closed_ = got == 0;
        break;
      }
      text.append(block, static_cast<std::size_t>(got));
    }
    return text;
  }
  bool closed() const { return closed_; }
  void half_close() { shutdown(descriptor_, SHUT_WR); }
  int descriptor() const { return descriptor_; }
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

 private:
  int descriptor_;
  bool closed_ = false;
};

class HttpTest : public testing::Test {
 protected:
  void serve(HttpOptions options = {}) {
    options.port = 0;
    options.state = state_ = std::make_shared<ServerState>();
    server_ = std::make_unique<HttpServer>(api_, options);
  }
  std::string raw(std::string_view text) {
    RawSocket socket(server_->port());
    socket.say(text);
    std::string answer = socket.hear();
    EXPECT_TRUE(socket.closed()) << "the server did not close";
    return answer;
  }
  bool abandoned_within_seconds(int count) {
    for (int i = 0; i < 2000 && api_->abandoned < count; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return api_->abandoned >= count;
  }
  std::shared_ptr<ServerState> state_;
  std::shared_ptr<TestApi> api_ = std::make_shared<TestApi>();
  std::unique_ptr<HttpServer> server_;
};

}  // namespace lockstep
