// Measures how long the first byte of an answer takes beyond the engine's own time, when many chat requests come at once. A client
// process keeps its connections open, writes all requests and waits for the first byte of each answer's stream. The time of
// each request has four parts:
//   way in   from the client's send to the Api: the kernel, the server's reading, the wait while others are read
//   handle   JSON, checks, template, tokenizer, until the request stands with the engine
//   engine   until the engine has its first token: waiting for the running step and for a place, prefill, sampling
//   way out  text, JSON, the hand-over to the server's thread, the kernel, the client
// "Beyond the engine" is the sum of all but the engine's. The engine computes the prompts of many requests in one step or a few;
// that time is its own, and also printed for the same prompts without any server, all there before the first step.
//   ninja -C build first_byte && build/bench/first_byte models/countdown-glm [requests [rounds [threads]]]
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <vector>

#include "api/json_fields.h"
#include "api/openai/openai_api.h"
#include "api/server_state.h"
#include "http/server.h"
#include "serving/loading.h"
#include "timing.h"

namespace {
using namespace lockstep;
constexpr int kTokens = 4, kWarmUp = 3;
constexpr const char* kTemplate = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";

// Milliseconds of a clock that processes share.
double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Never the same twice: nothing comes from the prefix cache.
std::string question(int count) { return fmt::format("{} {} 12={}:", count % 90 + 1, count / 90, count * 7919 % 1000); }

struct Sent {                           // at the client
  double sent = 0, byte = 0, read = 0;  // the byte at its socket, and in its hands
};
struct Handled {  // at the server
  double in = 0, out = 0;
};

class TimedResponder : public Responder {
 public:
  TimedResponder(std::shared_ptr<Responder> to, double* out) : to_(std::move(to)), out_(out) {}
  void send(ApiResponse response) override { to_->send(std::move(response)); }
  void begin_stream(std::string_view type) override {
    *out_ = now();
    to_->begin_stream(type);
  }
  void stream(std::string data) override { to_->stream(std::move(data)); }
  void end_stream() override { to_->end_stream(); }
  void on_abandoned(std::function<void()> callback) override { to_->on_abandoned(std::move(callback)); }
  std::size_t pending_bytes() const override { return to_->pending_bytes(); }

 private:
  std::shared_ptr<Responder> to_;
  double* out_;
};

// The request's number is its X-Request-Id.
class TimedApi : public Api {
 public:
  TimedApi(std::shared_ptr<Api> api, std::size_t requests) : times(requests), handling(requests), api_(std::move(api)) {}
  void handle(ApiRequest request, std::shared_ptr<Responder> responder) override {
    const auto index = static_cast<std::size_t>(std::atoi(request.request_id.c_str()));
    times[index].in = now();
    api_->handle(std::move(request), std::make_shared<TimedResponder>(std::move(responder), &times[index].out));
    handling[index] = now() - times[index].in;
  }
  ApiResponse error_response(int status, std::string_view message) const override { return api_->error_response(status, message); }
  Examination examine(const ApiRequest& head) const override { return api_->examine(head); }
  std::vector<Handled> times;
  std::vector<double> handling;

 private:
  std::shared_ptr<Api> api_;
};

// The engine alone: prompts are token ids, and all there before its first step. The mean over requests of one round.
double engine_alone(GenerationService& service, int requests) {
  static int asked = 100000;
  std::vector<Request> all;
  for (int i = 0; i < requests; ++i) {
    ChatTemplateInput input;
    input.messages = {{{"role", "user"}, {"content", question(++asked)}}};
    Request request{.prompt = service.model().encode_chat(input)};
    request.sampling.max_tokens = kTokens;
    all.push_back(std::move(request));
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<double> first(static_cast<std::size_t>(requests), 0);
  int left = requests;
  const double begin = now();
  service.generate_all(
      std::move(all),
      [&](const OnExecutor&, std::size_t i, const GeneratedToken&) {
        if (first[i] == 0) first[i] = now() - begin;
        return true;
      },
      [&](const OnExecutor&, std::size_t, Generation&&) {
        const std::lock_guard lock(mutex);
        if (--left == 0) changed.notify_all();
      });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return left == 0; });
  return std::accumulate(first.begin(), first.end(), 0.0) / requests;
}

int connect_to(std::uint16_t port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::exit(3);
  const int yes = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(descriptor, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof yes);
  return descriptor;
}

// Reads what there is; `came` is when the kernel had it, in now()'s milliseconds.
ssize_t receive(int descriptor, std::vector<char>& block, double* came) {
  iovec vector{block.data(), block.size()};
  alignas(cmsghdr) char control[256];
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(descriptor, &message, MSG_DONTWAIT);
  static const double offset = now() - std::chrono::duration<double, std::milli>(std::chrono::system_clock::now().time_since_epoch()).count();
  *came = now();
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); got > 0 && one != nullptr; one = CMSG_NXTHDR(&message, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec stamp{};
    std::memcpy(&stamp, CMSG_DATA(one), sizeof stamp);
    *came = static_cast<double>(stamp.tv_sec) * 1e3 + static_cast<double>(stamp.tv_nsec) * 1e-6 + offset;
  }
  return got;
}

std::vector<Sent> ask(std::uint16_t port, int requests, int rounds) {
  std::vector<pollfd> sockets;
  for (int i = 0; i < requests; ++i) sockets.push_back({connect_to(port), POLLIN, 0});
  std::vector<Sent> times;
  std::vector<char> block(1 << 16);
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::string> calls;
    for (int i = 0; i < requests; ++i) {
      const int count = round * requests + i;
      const std::string body = fmt::format(R"({{"model":"m","stream":true,"ignore_eos":true,"max_tokens":{},"messages":[{{"role":"user","content":"{}"}}]}})",
                                           kTokens, question(count));
      calls.push_back(fmt::format(
          "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", count,
          body.size(), body));
    }
    const std::size_t first = times.size();
    times.resize(first + sockets.size());
    std::vector<std::string> heard(sockets.size());
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      times[first + i].sent = now();
      if (send(sockets[i].fd, calls[i].data(), calls[i].size(), 0) != static_cast<ssize_t>(calls[i].size())) std::exit(3);
    }
    for (std::size_t open = sockets.size(); open > 0;) {
      poll(sockets.data(), sockets.size(), -1);
      for (std::size_t i = 0; i < sockets.size(); ++i) {
        if (!sockets[i].revents) continue;
        double came = 0;
        const ssize_t got = receive(sockets[i].fd, block, &came);
        if (got <= 0) std::exit(4);
        if (times[first + i].byte == 0) times[first + i] = {times[first + i].sent, came, now()};
        heard[i].append(block.data(), static_cast<std::size_t>(got));
        if (heard[i].ends_with("0\r\n\r\n")) --open;
      }
    }
    for (const std::string& answer : heard)
      if (!answer.starts_with("HTTP/1.1 200") || answer.find("[DONE]") == std::string::npos) std::exit(5);
  }
  for (const pollfd& one : sockets) close(one.fd);
  return times;
}

template <class T>
bool read_all(int descriptor, T* values, std::size_t count) {
  auto* at = reinterpret_cast<char*>(values);
  for (std::size_t left = count * sizeof(T); left > 0;) {
    const ssize_t got = read(descriptor, at, left);
    if (got <= 0) return false;
    at += got;
    left -= static_cast<std::size_t>(got);
  }
  return true;
}

struct Client {
  int ports[2], results[2];
  pid_t process = 0;
};

int measure(const std::shared_ptr<GenerationService>& service, const Client& client, int requests, int rounds) {
  std::vector<double> alone;
  for (int i = 0; i < rounds; ++i) alone.push_back(engine_alone(*service, requests));
  const auto routes = std::make_shared<Routes>();
  add_openai_routes(*routes, service);
  const std::size_t count = static_cast<std::size_t>(requests) * static_cast<std::size_t>(rounds);
  const auto api = std::make_shared<TimedApi>(routes, count);
  HttpServer server(api, {.port = 0});
  const std::uint16_t port = server.port();
  const double engine_before = service->statistics().first_token_seconds.sum();
  std::vector<Sent> heard(count);
  if (write(client.ports[1], &port, sizeof port) != sizeof port || !read_all(client.results[0], heard.data(), count)) return 3;
  const double engine = (service->statistics().first_token_seconds.sum() - engine_before) * 1000 / static_cast<double>(count);
  std::vector<double> in, handle, out, total, held, late;
  for (int round = kWarmUp; round < rounds; ++round) {
    std::array<double, 6> sums{};
    for (int i = 0; i < requests; ++i) {
      const auto at = static_cast<std::size_t>(round * requests + i);
      sums[0] += api->times[at].in - heard[at].sent;
      sums[1] += api->handling[at];
      sums[2] += heard[at].byte - api->times[at].out;
      sums[3] += heard[at].byte - heard[at].sent;
      sums[5] += heard[at].read - heard[at].byte;
      sums[4] += api->times[at].out - api->times[at].in - api->handling[at];
    }
    for (auto [list, sum] : {std::pair{&in, sums[0]}, {&handle, sums[1]}, {&out, sums[2]}, {&total, sums[3]}, {&held, sums[4]}, {&late, sums[5]}})
      list->push_back(sum / requests);
  }
  std::printf(
      "%d at once, mean over requests, median of %d rounds, ms: way in %.3f, handle %.3f, engine and the answer's text %.3f, way out %.3f; in all %.3f; read "
      "by the client %.3f later\n",
      requests, rounds - kWarmUp, median(in), median(handle), median(held), median(out), median(total), median(late));
  std::printf("  the engine's first token, mean %.3f with the server beside it, %.3f alone\n", engine, median(alone));
  return 0;
}
}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "models/countdown-glm";
  const int requests = argc > 2 ? std::atoi(argv[2]) : 64, rounds = kWarmUp + (argc > 3 ? std::atoi(argv[3]) : 30), threads = argc > 4 ? std::atoi(argv[4]) : 0;
  if (requests < 1 || requests > 512 || rounds <= kWarmUp) return std::fprintf(stderr, "usage: first_byte [model [requests [rounds [threads]]]]\n"), 2;
  Client client;
  if (pipe(client.ports) != 0 || pipe(client.results) != 0) return 3;
  client.process = fork();  // before any thread
  if (client.process == 0) {
    for (const int count : {requests, 1}) {
      std::uint16_t port = 0;
      if (!read_all(client.ports[0], &port, 1)) std::exit(3);
      const std::vector<Sent> times = ask(port, count, rounds);
      if (write(client.results[1], times.data(), times.size() * sizeof(Sent)) < 0) std::exit(3);
    }
    std::exit(0);
  }
  ServingModel model = serving_model(open_model({.model = folder, .threads = threads}));
  model.chat_template = std::make_shared<const ChatTemplate>(ChatTemplate::from_source(kTemplate));
  model.name = "m";
  const auto service = std::make_shared<GenerationService>(std::move(model));
  int fault = measure(service, client, requests, rounds);
  if (fault == 0) fault = measure(service, client, 1, rounds);
  int status = 0;
  waitpid(client.process, &status, 0);
  service->stop();
  return fault != 0 ? fault : WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}
