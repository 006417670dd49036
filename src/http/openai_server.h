// The server that `lockstep serve` and the demo run: OpenAI's API (api/openai) over a generation service, and what its caller
// adds. Any thread.
//   const auto server = serve_openai(service, {.port = 0}, [](Routes& routes) { add_page_routes(routes); });
#pragma once
#include "api/openai/openai_api.h"
#include "http/server.h"

namespace lockstep {

// Errors as HttpServer's.
std::unique_ptr<HttpServer> serve_openai(std::shared_ptr<GenerationService> service, const HttpOptions& options,
                                         const std::function<void(Routes&)>& add_more = {});

}  // namespace lockstep
