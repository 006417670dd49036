#include "http/server.h"

#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "api/body_budget.h"
#include "base/error.h"
#include "base/log.h"
#include "base/seconds.h"
#include "http/connection.h"
#include "http/prompt_thread.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

namespace lockstep {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {
constexpr auto kTick = std::chrono::milliseconds(50);  // how late a deadline may be
constexpr auto kStopTick = std::chrono::milliseconds(10);
constexpr auto kAcceptAgain = std::chrono::milliseconds(100);

asio::ip::address address_of(const std::string& host) {
  error_code fault;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, fault);
  if (fault) fail(ErrorCode::invalid_argument, "host is '{}', allowed is an address such as 127.0.0.1, 0.0.0.0 or ::1", host);
  return address;
}
}  // namespace

bool is_loopback_address(const std::string& host) { return address_of(host).is_loopback(); }

struct HttpServer::State : std::enable_shared_from_this<HttpServer::State> {
  std::shared_ptr<asio::io_context> io = std::make_shared<asio::io_context>(1);  // first member, so destroyed last: those below need it
  std::shared_ptr<Api> api;
  std::shared_ptr<HttpShared> shared = std::make_shared<HttpShared>();
  std::shared_ptr<TlsContext> tls;
  tcp::acceptor acceptor{*io};
  asio::steady_timer ticker{*io}, accept_timer{*io};
  ServerState::Clock::time_point stop_began;
  bool abandoned = false;
  std::string url;
  std::uint16_t port = 0;
  std::thread thread;
  std::mutex stop_mutex;

  void listen();
  void accept();
  void take(tcp::socket socket);
  void tick();
  bool finished = false;  // a tick that was queued before the stop does nothing
  void begin_stop();
  bool stopped();
  void finish_stop();
  void work();
  std::vector<std::shared_ptr<Connection>> connections() const { return {shared->connections.begin(), shared->connections.end()}; }
};

void HttpServer::State::listen() {
  const HttpOptions& o = shared->options;
  if (o.port < 0 || o.port > 65535) fail(ErrorCode::invalid_argument, "port is {}, allowed is 0 (any that is free) to 65535", o.port);
  if (o.tls_certificate.empty() != o.tls_key.empty())
    fail(ErrorCode::invalid_argument, "{} is missing; TLS needs a certificate and its key", o.tls_key.empty() ? "tls-key" : "tls-certificate");
  if (!o.tls_certificate.empty()) tls = load_tls_context(o.tls_certificate, o.tls_key);
  const auto address = address_of(o.host);
  const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(o.port));
  error_code fault;
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
  url = fmt::format("{}://{}:{}", tls ? "https" : "http", address.is_v6() ? "[" + address.to_string() + "]" : address.to_string(), port);
}

void HttpServer::State::accept() {
  acceptor.async_accept([self = shared_from_this()](const error_code& fault, tcp::socket socket) {
    State& s = *self;
    if (!s.acceptor.is_open()) return;
    if (fault) {  // out of descriptors, say: a moment later some may be free
      log_warning("a connection could not be accepted", {{"reason", fault.message()}});
      s.accept_timer.expires_after(kAcceptAgain);
      s.accept_timer.async_wait([self](const error_code& cancelled) {
        if (!cancelled) self->accept();
      });
      return;
    }
    s.accept();
    s.take(std::move(socket));
  });
}

void HttpServer::State::take(tcp::socket socket) {
  error_code ignored;
  const auto count = [this] { shared->state->connections_total.fetch_add(1); };
  if (shared->connections.size() >= static_cast<std::size_t>(shared->options.max_connections) && !shared->close_resting()) {
    constexpr std::string_view kBusy = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
    if (!tls) send(socket.native_handle(), kBusy.data(), kBusy.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return count();
  }
  socket.set_option(tcp::no_delay(true), ignored);
  const auto connection = std::make_shared<Connection>(shared, tls ? tls_transport(tls, std::move(socket)) : plain_transport(std::move(socket)));
  shared->connections.insert(connection);
  shared->state->connections.fetch_add(1);
  count();  // after the count of open ones: whoever reads that a connection came also reads it among those
  connection->start();
}

// One timer for all deadlines: a write or a request costs none of its own.
void HttpServer::State::tick() {
  if (finished) return;
  const auto now = ServerState::Clock::now();
  for (const auto& connection : connections()) connection->check(now);
  if (shared->state->draining && stopped()) return finish_stop();
  ticker.expires_after(shared->state->draining ? kStopTick : kTick);
  ticker.async_wait([self = shared_from_this()](const error_code& cancelled) {
    if (!cancelled) self->tick();
  });
}

void HttpServer::State::begin_stop() {
  shared->state->draining = true;
  stop_began = ServerState::Clock::now();
  for (const auto& connection : connections()) connection->drain();
  tick();
}

bool HttpServer::State::stopped() {
  const HttpOptions& o = shared->options;
  const double seconds = seconds_since(stop_began);
  const auto all = connections();
  const bool busy = std::any_of(all.begin(), all.end(), [](const auto& connection) { return connection->busy(); });
  if (!busy && seconds >= o.drain_seconds) return true;
  if (seconds > o.stop_seconds && !abandoned) {
    abandoned = true;
    for (const auto& connection : all) connection->abandon(true);
  }
  return seconds > std::max(o.stop_seconds + 1.5, o.drain_seconds);
}

void HttpServer::State::finish_stop() {
  finished = true;
  error_code ignored;
  acceptor.close(ignored);
  for (const auto& connection : connections()) connection->close(true);
  io->stop();
}

// Handlers until the io_context stops or has none left.
void HttpServer::State::work() {
  while (true) {
    try {
      io->run();
      return;
    } catch (const std::exception& e) {  // one handler has failed; the others go on
      log_error("a handler of the http server failed", {{"reason", e.what()}});
    }
  }
}

HttpServer::HttpServer(std::shared_ptr<Api> api, const HttpOptions& options) : state_(std::make_shared<State>()) {
  HttpShared& shared = *state_->shared;
  state_->api = std::move(api);
  shared.io = state_->io;
  shared.outbox = std::make_shared<Outbox>(state_->io);
  shared.api = state_->api.get();
  shared.options = options;
  shared.state = options.state ? options.state : std::make_shared<ServerState>();
  if (!shared.options.bodies) shared.options.bodies = std::make_shared<BodyBudget>(options.max_bodies_bytes, options.bodies_key_share);
  shared.state->add_metrics([bodies = shared.options.bodies](PrometheusText& text) { bodies->append_metrics(text); });
  state_->listen();
  state_->accept();
  state_->tick();
  state_->thread = std::thread([state = state_] {
    prefer_prompt_wakeups();
    state->work();
  });
}

HttpServer::~HttpServer() { stop(); }
std::uint16_t HttpServer::port() const { return state_->port; }
std::string HttpServer::url() const { return state_->url; }

void HttpServer::stop() {
  const std::lock_guard lock(state_->stop_mutex);
  if (!state_->thread.joinable()) return;
  asio::post(*state_->io, [state = state_] { state->begin_stop(); });
  state_->thread.join();
  state_->shared->outbox->close();
  // Runs the handlers of the cancelled operations, which hold references to the state.
  state_->ticker.cancel();
  state_->accept_timer.cancel();
  state_->io->restart();
  state_->work();
}

}  // namespace lockstep
