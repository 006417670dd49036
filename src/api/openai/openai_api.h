// The routes of OpenAI's HTTP API. The field `model` of a request chooses one of the server's deployments:
//   GET /v1/models   GET /v1/models/{model}   POST /v1/completions   POST /v1/chat/completions   POST /v1/responses   POST /v1/embeddings
//   GET, DELETE /v1/responses/{response_id}   GET /v1/responses/{response_id}/input_items   POST /v1/tokenize
//   POST /v1/detokenize   POST /v1/load_lora_adapter   POST /v1/unload_lora_adapter
// Answers have more fields than OpenAI's: token ids and sampling_logprobs for each choice; seed, weights_version and profile (its digest).
// Knows no socket. Any thread.
//   Routes routes; add_openai_routes(routes, service);
#pragma once
#include "api/routes.h"
#include "serving/deployments.h"

namespace lockstep {

void add_openai_routes(Routes& routes, std::shared_ptr<const Deployments> deployments);
// Of one model alone.
void add_openai_routes(Routes& routes, std::shared_ptr<GenerationService> service);

}  // namespace lockstep
