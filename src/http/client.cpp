#include "http/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace lockstep {
namespace http = boost::beast::http;

namespace {
constexpr std::size_t kMostBytes = 64 << 20;

class Socket {
 public:
  explicit Socket(const HttpCall& call) : call_(call), descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (descriptor_ < 0) refuse("make a socket for");
    timeval limit{};
    limit.tv_sec = static_cast<time_t>(call.timeout_seconds);
    limit.tv_usec = static_cast<suseconds_t>((call.timeout_seconds - static_cast<double>(limit.tv_sec)) * 1e6);
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(call.port);
    if (inet_pton(AF_INET, call.host.c_str(), &address.sin_addr) != 1) {
      ::close(descriptor_);
      fail(ErrorCode::invalid_argument, "host is '{}', allowed is an IPv4 address", call.host);
    }
    if (connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      const int problem = errno;
      ::close(descriptor_);
      errno = problem;
      refuse("connect to");
    }
  }
  ~Socket() { ::close(descriptor_); }
  Socket(const Socket&) = delete;

  void send_all(std::string_view data) {
    while (!data.empty()) {
      const ssize_t sent = ::send(descriptor_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) refuse("send to");
      data.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  std::size_t receive(char* data, std::size_t bytes) {
    while (true) {
      const ssize_t got = recv(descriptor_, data, bytes, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) refuse("hear from");
      return static_cast<std::size_t>(got);
    }
  }

 private:
  [[noreturn]] void refuse(const char* what) const {
    const bool silence = errno == EAGAIN || errno == EWOULDBLOCK;
    fail(ErrorCode::io, "cannot {} {}:{}: {}", what, call_.host, call_.port, silence ? "no answer in time" : std::strerror(errno));
  }
  const HttpCall& call_;
  int descriptor_;
};
}  // namespace

HttpReply http_call(const HttpCall& call) {
  Socket socket(call);
  std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n", call.method, call.path, call.host, call.port);
  if (!call.body.empty()) request += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", call.body.size());
  socket.send_all(request + "\r\n" + call.body);

  http::response_parser<http::string_body> parser;
  parser.eager(true);
  parser.body_limit(kMostBytes);
  if (call.method == "HEAD") parser.skip(true);
  std::string held;
  boost::system::error_code fault;
  char block[16384];
  while (!parser.is_done()) {
    const std::size_t got = socket.receive(block, sizeof block);
    if (got == 0) {
      parser.put_eof(fault);
      break;
    }
    held.append(block, got);
    while (!held.empty() && !parser.is_done()) {
      const std::size_t used = parser.put(boost::asio::buffer(held), fault);
      held.erase(0, used);
      if (fault || used == 0) break;
    }
    if (fault == http::error::need_more) fault = {};
    if (fault) break;
  }
  if (fault == http::error::body_limit) fail(ErrorCode::resource_exhausted, "the answer of {}:{} is above {} bytes", call.host, call.port, kMostBytes);
  if (fault || !parser.is_done()) fail(ErrorCode::io, "the answer of {}:{} is not HTTP: {}", call.host, call.port, fault.message());
  return {static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
}

}  // namespace lockstep
