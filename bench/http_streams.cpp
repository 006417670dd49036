// Measures the cost of HTTP and streaming without a model: a server whose Api sends ready-made events, and a client process that reads
// them. Prints the server's processor time per token, and how long the first byte takes.
//   ninja -C build http_streams && build/http_streams [streams [tokens [microseconds a step]]]
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "api/server_state.h"
#include "http/server.h"

namespace {
using namespace lockstep;
using Clock = std::chrono::steady_clock;

// What a completion's event looks like.
const std::string kEvent =
    R"(data: {"id":"cmpl-0123456789abcdef01234567","object":"text_completion","created":1767225600,"model":"countdown-glm",)"
    R"("choices":[{"index":0,"text":"7 ","logprobs":null,"finish_reason":null,"token_ids":[42]}],"seed":1,"weights_version":0,"profile":"0123456789abcdef"})"
    "\n\n";

class Streams : public Api {
 public:
  void handle(ApiRequest request, std::shared_ptr<Responder> responder) override {
    if (request.path == "/first") {  // the least there is: one byte at once
      responder->begin_stream("text/event-stream");
      responder->stream("x");
      return responder->end_stream();
    }
    responder->begin_stream("text/event-stream");
    const std::lock_guard lock(mutex_);
    responders_.push_back(std::move(responder));
    came_.notify_all();
  }
  ApiResponse error_response(int status, std::string_view message) const override { return {status, "text/plain", std::string(message), {}}; }
  std::vector<std::shared_ptr<Responder>> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    came_.wait(lock, [&] { return responders_.size() >= count; });
    return std::move(responders_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::shared_ptr<Responder>> responders_;
};

double processor_seconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int connect_to(std::uint16_t port, const std::string& path) {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  if (connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      send(descriptor, request.data(), request.size(), 0) != static_cast<ssize_t>(request.size()))
    std::exit(3);
  return descriptor;
}

void read_all(std::uint16_t port, int streams) {
  std::vector<pollfd> sockets;
  for (int i = 0; i < streams; ++i) sockets.push_back({connect_to(port, "/stream"), POLLIN, 0});
  std::vector<char> block(1 << 16);
  for (int open = streams; open > 0;) {
    poll(sockets.data(), sockets.size(), -1);
    for (pollfd& one : sockets)
      if (one.revents && recv(one.fd, block.data(), block.size(), MSG_DONTWAIT) == 0) {
        close(one.fd);
        one.fd = -1;
        --open;
      }
  }
}

void first_bytes(std::uint16_t port) {
  std::vector<double> microseconds;
  for (int i = 0; i < 2000; ++i) {
    const auto begin = Clock::now();
    const int descriptor = connect_to(port, "/first");
    char block[4096];
    if (recv(descriptor, block, sizeof block, 0) <= 0) std::exit(3);
    microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    close(descriptor);
  }
  std::sort(microseconds.begin(), microseconds.end());
  std::printf("first byte, new connection included: median %.0f us, 99 of 100 within %.0f us\n", microseconds[1000], microseconds[1980]);
  std::fflush(stdout);
}
}  // namespace

int main(int argc, char** argv) {
  const int streams = argc > 1 ? std::atoi(argv[1]) : 64, tokens = argc > 2 ? std::atoi(argv[2]) : 2000;
  const int step = argc > 3 ? std::atoi(argv[3]) : 2000;
  if (streams < 1 || tokens < 1 || step < 0) return std::fprintf(stderr, "usage: http_streams [streams [tokens [microseconds a step]]]\n"), 2;
  int ports[2];
  if (pipe(ports) != 0) return 3;
  const pid_t client = fork();  // before any thread
  if (client == 0) {
    std::uint16_t port = 0;
    if (read(ports[0], &port, sizeof port) != sizeof port) std::exit(3);
    first_bytes(port);
    read_all(port, streams);
    std::exit(0);
  }
  const auto api = std::make_shared<Streams>();
  HttpServer server(api, {.port = 0});
  const std::uint16_t port = server.port();
  if (write(ports[1], &port, sizeof port) != sizeof port) return 3;
  const auto responders = api->wait_for(static_cast<std::size_t>(streams));
  const double before = processor_seconds(RUSAGE_SELF);
  const auto begin = Clock::now();
  auto next = begin;
  for (int t = 0; t < tokens; ++t) {  // as an engine's step does: a token for each stream, then work
    for (const auto& responder : responders) responder->stream(kEvent);
    next += std::chrono::microseconds(step);
    std::this_thread::sleep_until(next);
  }
  for (const auto& responder : responders) responder->end_stream();
  int status = 0;
  waitpid(client, &status, 0);
  const double all = static_cast<double>(streams) * tokens;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("%d streams, a step each %d us: %.2f us of processor time a token, %.0f tokens/s\n", streams, step,
              (processor_seconds(RUSAGE_SELF) - before) / all * 1e6, all / seconds);
  server.stop();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}
