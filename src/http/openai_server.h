// The server that `lockstep serve` and the demo run: OpenAI's API (api/openai) and the routes of operations over a generation
// service, and what its caller adds. Any thread.
//   const auto server = serve_openai(service, {.port = 0}, {}, [](Routes& routes) { add_page_routes(routes); });
#pragma once
#include "api/openai/openai_api.h"
#include "api/operations.h"
#include "http/server.h"

namespace lockstep {

// access.loopback is set from the host. Errors as HttpServer's and Access::check's.
std::unique_ptr<HttpServer> serve_openai(std::shared_ptr<GenerationService> service, HttpOptions options, Access access = {},
                                         const std::function<void(Routes&)>& add_more = {}, MoreMetrics more_metrics = {});

}  // namespace lockstep
