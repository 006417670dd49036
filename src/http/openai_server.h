// The server of `lockstep serve` and the demo: OpenAI's API (api/openai) and the operations routes over generation
// services, plus routes that the caller adds. Any thread.
//   const auto server = serve_openai(service, {.port = 0}, {}, [](Routes& routes) { add_page_routes(routes, {.title = "chat"}); });
#pragma once
#include "api/openai/openai_api.h"
#include "http/server.h"

namespace lockstep {

// Of several models, and of one. `streams`: as add_openai_routes'. access.loopback is set from the host. Errors: those of HttpServer and Access::check.
std::unique_ptr<HttpServer> serve_openai(std::shared_ptr<const Deployments> deployments, HttpOptions options, Access access = {},
                                         const std::function<void(Routes&)>& add_more = {}, std::shared_ptr<HeldStreams> streams = nullptr);
std::unique_ptr<HttpServer> serve_openai(std::shared_ptr<GenerationService> service, HttpOptions options, Access access = {},
                                         const std::function<void(Routes&)>& add_more = {});

}  // namespace lockstep
