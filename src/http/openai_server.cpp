#include "http/openai_server.h"

namespace lockstep {

std::unique_ptr<HttpServer> serve_openai(std::shared_ptr<GenerationService> service, const HttpOptions& options,
                                         const std::function<void(Routes&)>& add_more) {
  const auto routes = std::make_shared<Routes>();
  add_openai_routes(*routes, std::move(service));
  if (add_more) add_more(*routes);
  return std::make_unique<HttpServer>(routes, options);
}

}  // namespace lockstep
