#include "http/server.h"

#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "http/connection.h"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

namespace lockstep {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct HttpServer::State : std::enable_shared_from_this<HttpServer::State> {
  std::shared_ptr<asio::io_context> io = std::make_shared<asio::io_context>(1);  // first: all below are its objects
  std::shared_ptr<HttpShared> shared = std::make_shared<HttpShared>();
  tcp::acceptor acceptor{*io};
  asio::steady_timer timer{*io};
  std::chrono::steady_clock::time_point stop_began;
  bool abandoned = false;
  std::string url;
  std::uint16_t port = 0;
  std::thread thread;
  std::mutex stop_mutex;

  void listen();
  void accept();
  void begin_stop();
  void watch_stop();
  void work();
};

void HttpServer::State::listen() {
  const HttpOptions& o = shared->options;
  if (o.port < 0 || o.port > 65535) fail(ErrorCode::invalid_argument, "port is {}, allowed is 0 (any that is free) to 65535", o.port);
  error_code fault;
  const auto address = asio::ip::make_address(o.host == "localhost" ? "127.0.0.1" : o.host, fault);
  if (fault) fail(ErrorCode::invalid_argument, "host is '{}', allowed is an address such as 127.0.0.1, 0.0.0.0 or ::1", o.host);
  const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(o.port));
  const auto check = [&] {
    if (fault) fail(ErrorCode::io, "cannot listen on {} port {}: {}", o.host, o.port, fault.message());
  };
  acceptor.open(endpoint.protocol(), fault);
  check();
  acceptor.set_option(tcp::acceptor::reuse_address(true), fault);
  acceptor.bind(endpoint, fault);
  check();
  acceptor.listen(asio::socket_base::max_listen_connections, fault);
  check();
  port = acceptor.local_endpoint().port();
  url = address.is_v6() ? fmt::format("http://[{}]:{}", address.to_string(), port) : fmt::format("http://{}:{}", address.to_string(), port);
}

void HttpServer::State::accept() {
  acceptor.async_accept([self = shared_from_this()](const error_code& fault, tcp::socket socket) {
    State& s = *self;
    if (s.shared->stopping || !s.acceptor.is_open()) return;
    if (fault) {  // out of descriptors, say: a moment later some may be free
      log_warning("a connection could not be accepted", {{"reason", fault.message()}});
      s.timer.expires_after(std::chrono::milliseconds(100));
      s.timer.async_wait([self](const error_code& cancelled) {
        if (!cancelled) self->accept();
      });
      return;
    }
    s.accept();
    if (s.shared->connections.size() >= s.shared->options.max_connections) {
      error_code ignored;
      socket.non_blocking(true, ignored);
      constexpr std::string_view kBusy = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
      socket.write_some(asio::buffer(kBusy), ignored);
    } else {
      const auto connection = std::make_shared<Connection>(s.shared, *s.io, std::move(socket));
      s.shared->connections.insert(connection);
      connection->start();
    }
  });
}

void HttpServer::State::begin_stop() {
  if (shared->stopping) return;
  shared->stopping = true;
  stop_began = std::chrono::steady_clock::now();
  error_code ignored;
  acceptor.close(ignored);
  const std::vector<std::shared_ptr<Connection>> all(shared->connections.begin(), shared->connections.end());
  for (const auto& connection : all) connection->drain();
  watch_stop();
}

void HttpServer::State::watch_stop() {
  if (shared->connections.empty()) return io->stop();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - stop_began).count();
  const std::vector<std::shared_ptr<Connection>> all(shared->connections.begin(), shared->connections.end());
  if (seconds > shared->options.stop_seconds && !abandoned) {
    abandoned = true;
    for (const auto& connection : all) connection->abandon();
  }
  if (seconds > shared->options.stop_seconds + 1.5) {
    for (const auto& connection : all) connection->close();
    return io->stop();
  }
  timer.expires_after(std::chrono::milliseconds(10));
  timer.async_wait([self = shared_from_this()](const error_code& cancelled) {
    if (!cancelled) self->watch_stop();
  });
}

// Handlers until the io_context stops or has none left.
void HttpServer::State::work() {
  while (true) {
    try {
      io->run();
      return;
    } catch (const std::exception& e) {  // of one handler; the others go on
      log_error("a handler of the http server failed", {{"reason", e.what()}});
    }
  }
}

HttpServer::HttpServer(std::shared_ptr<Api> api, const HttpOptions& options) : state_(std::make_shared<State>()) {
  state_->shared->io = state_->io;
  state_->shared->api = std::move(api);
  state_->shared->options = options;
  state_->listen();
  state_->accept();
  state_->thread = std::thread([state = state_] { state->work(); });
}

HttpServer::~HttpServer() { stop(); }
std::uint16_t HttpServer::port() const { return state_->port; }
std::string HttpServer::url() const { return state_->url; }

void HttpServer::stop() {
  const std::lock_guard lock(state_->stop_mutex);
  if (!state_->thread.joinable()) return;
  asio::post(*state_->io, [state = state_] { state->begin_stop(); });
  state_->thread.join();
  // What was cancelled learns of it, and lets go of the state.
  state_->timer.cancel();
  state_->io->restart();
  state_->work();
}

}  // namespace lockstep
