// POST /inference/v1/completions of a server without a trainer: Fireworks' completions of its deployments, each answer and event with the snapshot that its
// tokens are of (`model: NAME@IDENTITY`). `model` means what it means on OpenAI's routes (serving/deployments.h); a server with one model and no alias
// takes whatever name. Any thread.
//   add_model_completions(routes, deployments);
#pragma once
#include "api/routes.h"
#include "serving/deployments.h"

namespace lockstep {

void add_model_completions(Routes& routes, std::shared_ptr<const Deployments> deployments);

}  // namespace lockstep
