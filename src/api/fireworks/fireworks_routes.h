// What the Fireworks training SDK asks for beside the training protocol it shares with Tinker (api/tinker): completions of its
// sampler, hot load of snapshots into deployments, and the control plane (accounts, training shapes, jobs, deployments, checkpoints,
// promotion). Knows no socket. Any thread.
//   add_fireworks_routes(routes, service, ShapeCatalog::published());
#pragma once
#include "api/fireworks/deployments.h"
#include "api/tinker/wire.h"
#include "service/training/shape_catalog.h"

namespace lockstep {

// `shapes`: that clients may resolve, beside those of the base on this machine.
void add_fireworks_routes(Routes& routes, const std::shared_ptr<TrainingService>& service, const ShapeCatalog& shapes);

// The parts, one file each.
void add_completion_routes(TrainingRoutes& routes, const std::shared_ptr<Deployments>& deployments);
void add_hot_load_routes(TrainingRoutes& routes, const std::shared_ptr<Deployments>& deployments);
void add_control_routes(TrainingRoutes& routes, const std::shared_ptr<Deployments>& deployments, const std::shared_ptr<const ShapeCatalog>& shapes);
void add_shape_routes(TrainingRoutes& routes, const std::shared_ptr<const ShapeCatalog>& shapes);

}  // namespace lockstep
