// A server of only the live page (api/page), beside a training run: on the loopback interface, and on another port when the requested one is taken.
// Any thread.
//   const auto server = serve_page({.places = {.roots = {"runs"}}}, 8088); print(server->url());
#pragma once
#include "api/page/page_routes.h"
#include "http/server.h"

namespace lockstep {

// port 0: any. Error io when there is none at all.
std::unique_ptr<HttpServer> serve_page(PageOptions options, std::int64_t port);

}  // namespace lockstep
