// An HTTP/1.1 server for an Api: keep-alive, limits, deadlines, streams, clean shutdown. Knows no route and no JSON.
// One thread of its own; Api::handle is called on it and must not block. All functions here: any thread.
//   HttpServer server(api, {.port = 0}); print(server.url()); ... server.stop();
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "api/exchange.h"

namespace lockstep {

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, or localhost
  std::int64_t port = 8080;        // 0: any that is free
  std::size_t max_header_bytes = 16 << 10;
  std::size_t max_body_bytes = 4 << 20;
  std::size_t max_pending_bytes = 4 << 20;  // of a stream that its client does not read; more ends it
  std::size_t max_connections = 1000;
  double idle_seconds = 75;        // between requests
  double header_seconds = 10;      // from the first byte of a request to the end of its headers
  double body_seconds = 60;
  double write_seconds = 30;       // a client that takes nothing for so long has gone
  double stop_seconds = 5;         // what running requests get to finish
};

class HttpServer {
 public:
  // Listens, and answers, at once. Errors: invalid_argument (host, port), io (address in use, ...).
  HttpServer(std::shared_ptr<Api> api, const HttpOptions& options);
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:8080"
  // No new connections; idle ones close; running requests finish, or are abandoned after stop_seconds. Returns when all are
  // gone, at most two seconds after that. Again: nothing happens.
  void stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
