// An HTTP/1.1 server for an Api: keep-alive, limits, deadlines, streams, TLS, graceful shutdown.
//   HttpServer server(api, {.port = 0}); print(server.url()); ... server.stop();
// Knows no route and no JSON. It has one thread; Api::handle is called on it and must not block. All functions here: any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "api/exchange.h"

namespace lockstep {

class BodyBudget;
class ServerState;

struct HttpOptions {
  std::string host = "127.0.0.1";            // an address, or localhost
  std::int64_t port = 8080;                  // 0: any that is free
  std::int64_t max_header_bytes = 16 << 10;  // of request line and headers together
  std::int64_t max_headers = 100;
  std::int64_t max_target_bytes = 8 << 10;
  std::int64_t max_body_bytes = 4 << 20;
  std::int64_t max_bodies_bytes = std::int64_t{2} << 30;  // of all bodies that are read, decoded or wait for their turn (api/body_budget.h)
  std::int64_t bodies_key_share = 50;                     // the part of max_bodies_bytes that one API key may take, in percent
  std::int64_t max_pending_bytes = 4 << 20;               // of a stream that its client does not read; more ends it
  std::int64_t max_held_bytes = 256 << 20;                // of all answers that wait for their clients; above it the slowest are closed
  std::int64_t max_ahead_bytes = 64 << 10;                // read of pipelined requests during an answer; more stays in the socket
  std::int64_t max_connections = 1000;
  double rest_seconds = 5;        // with max_connections open, one that has asked for nothing for as long is closed for a new one
  double handshake_seconds = 10;  // of TLS
  double idle_seconds = 75;       // between requests
  double header_seconds = 10;     // from the first byte of a request to the end of its headers
  double body_seconds = 60;
  double write_seconds = 30;                       // for a client to take the next block, 256 KB at most
  double drain_seconds = 0;                        // stop() listens and answers 503 (readyz too) for at least as long
  double stop_seconds = 5;                         // for running requests to finish at stop()
  std::string tls_certificate = {}, tls_key = {};  // files in PEM; both or none
  bool access_log = false;                         // a line per request; never bodies, never keys
  std::shared_ptr<ServerState> state = nullptr;    // null: one of its own
  std::shared_ptr<BodyBudget> bodies = nullptr;    // null: one of its own, of max_bodies_bytes and bodies_key_share
};

class HttpServer {
 public:
  // Listens, and answers, at once. Errors: invalid_argument (host, port, TLS files), io (address in use, ...).
  HttpServer(std::shared_ptr<Api> api, const HttpOptions& options);
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:8080"
  // From now on new requests are answered with 503, except those that the Api answers while it drains; idle connections close;
  // running requests finish, or are cancelled after stop_seconds. Returns when all are closed, at most two seconds after that, but not
  // before drain_seconds. A second call does nothing.
  void stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Whether other machines cannot reach a server on `host`.
bool is_loopback_address(const std::string& host);

}  // namespace lockstep
