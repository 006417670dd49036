// POST /inference/v1/completions on a server without a trainer: each answer and event names the snapshot that its tokens come from (`model:
// NAME@IDENTITY`). `model` means the same as on OpenAI's routes (serving/deployments.h), or a deployment that a client made (deployment_routes.h); a server
// with one model and no alias accepts any name. Any thread.
//   add_model_completions(routes, deployments);
#pragma once
#include "api/routes.h"
#include "serving/deployments.h"
#include "serving/hosted_deployment.h"

namespace lockstep {

class HeldStreams;

// `streams`: those of OpenAI's routes; null: none is held. `hosted`: what clients made; null: nothing.
void add_model_completions(Routes& routes, std::shared_ptr<const Deployments> deployments, std::shared_ptr<HeldStreams> streams = nullptr,
                           std::shared_ptr<HostedDeployments> hosted = nullptr);

}  // namespace lockstep
