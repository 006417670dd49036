// The training protocol that the `tinker` package speaks, and the part of it that `fireworks-ai` shares, as rows of Routes below
// /api/v1/: sessions and results, models and their operations, samplers, the catalog of runs and checkpoints. JSON and protobuf.
// Knows no socket. Any thread.
//   Routes routes; add_tinker_routes(routes, service);
#pragma once
#include "api/json_web_token.h"
#include "api/tinker/training_routes.h"

namespace lockstep {

class HeldStreams;

struct TrainingRouteOptions {
  bool tls = false;                           // clients reach the server by https
  std::shared_ptr<const TokenSigner> tokens;  // for the route auth/token, the same as Access has; null: there is no such route
  bool wants_tokens = false;                  // clients are told to exchange their keys for tokens
  std::shared_ptr<HeldStreams> streams = {};  // the table of OpenAI's routes, for Fireworks' streams too; null: none of these is held
};

void add_tinker_routes(Routes& routes, const std::shared_ptr<TrainingService>& service, const TrainingRouteOptions& options = {});

// The parts, one file each.
void add_session_routes(TrainingRoutes& routes, const TrainingRouteOptions& options);
void add_external_routes(TrainingRoutes& routes, const TrainingRouteOptions& options);
void add_model_routes(TrainingRoutes& routes);
void add_sampling_routes(TrainingRoutes& routes);
void add_catalog_routes(TrainingRoutes& routes);
void add_account_routes(TrainingRoutes& routes);

// A model's optimizer in the form that requests and answers have: {"type": "adamw"}, {"type": "dimuon", "version": 1}.
TrainingJson optimizer_config(const ModelSettings& settings);

}  // namespace lockstep
