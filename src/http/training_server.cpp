#include "http/training_server.h"

#include "api/fireworks/fireworks_routes.h"
#include "api/tinker/tinker_routes.h"

namespace lockstep {

void add_training_routes(Routes& routes, const std::shared_ptr<TrainingService>& service, const ShapeCatalog& shapes, const TrainingRouteOptions& options) {
  add_tinker_routes(routes, service, options);
  add_fireworks_routes(routes, service, shapes);
}

}  // namespace lockstep
