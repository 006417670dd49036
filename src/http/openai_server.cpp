#include "http/openai_server.h"

#include "api/operations.h"

namespace lockstep {

std::unique_ptr<HttpServer> serve_openai(std::shared_ptr<GenerationService> service, HttpOptions options, Access access,
                                         const std::function<void(Routes&)>& add_more) {
  return serve_openai(only_deployment(std::move(service)), std::move(options), std::move(access), add_more);
}

std::unique_ptr<HttpServer> serve_openai(std::shared_ptr<const Deployments> deployments, HttpOptions options, Access access,
                                         const std::function<void(Routes&)>& add_more, std::shared_ptr<HeldStreams> streams) {
  const auto routes = std::make_shared<Routes>();
  access.loopback = is_loopback_address(options.host);
  routes->set_access(std::move(access));
  if (!options.state) options.state = std::make_shared<ServerState>();
  add_openai_routes(*routes, deployments, std::move(streams));
  add_operation_routes(*routes, deployments->first(), options.state, LOCKSTEP_VERSION);
  if (add_more) add_more(*routes);
  return std::make_unique<HttpServer>(routes, options);
}

}  // namespace lockstep
