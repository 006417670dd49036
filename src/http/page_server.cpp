#include "http/page_server.h"

#include "base/error.h"

namespace lockstep {

std::unique_ptr<HttpServer> serve_page(PageOptions options, std::int64_t port) {
  const auto routes = std::make_shared<Routes>();
  Access access;
  access.loopback = true;
  routes->set_access(std::move(access));
  add_page_routes(*routes, std::move(options));
  HttpOptions http;
  http.port = port;
  http.max_connections = 64;
  http.stop_seconds = 1;
  try {
    return std::make_unique<HttpServer>(routes, http);
  } catch (const Error& e) {
    if (port == 0 || e.code() != ErrorCode::io) throw;
    http.port = 0;
    return std::make_unique<HttpServer>(routes, http);
  }
}

}  // namespace lockstep
