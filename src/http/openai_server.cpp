#include "http/openai_server.h"

namespace lockstep {

std::unique_ptr<HttpServer> serve_openai(std::shared_ptr<GenerationService> service, HttpOptions options, Access access,
                                         const std::function<void(Routes&)>& add_more, MoreMetrics more_metrics) {
  const auto routes = std::make_shared<Routes>();
  access.loopback = is_loopback_address(options.host);
  routes->set_access(std::move(access));
  if (!options.state) options.state = std::make_shared<ServerState>();
  add_openai_routes(*routes, service);
  add_operation_routes(*routes, std::move(service), options.state, LOCKSTEP_VERSION, std::move(more_metrics));
  if (add_more) add_more(*routes);
  return std::make_unique<HttpServer>(routes, options);
}

}  // namespace lockstep
