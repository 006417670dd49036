// The routes of OpenAI's HTTP API. A request's field `model` chooses one of the server's deployments. Knows no socket. Any thread.
// - GET /v1/models, /v1/models/{model}; POST /v1/completions, /v1/chat/completions, /v1/responses, /v1/embeddings
// - GET, DELETE /v1/responses/{response_id}; GET /v1/responses/{response_id}/input_items
// - POST /v1/tokenize, /v1/detokenize, /v1/load_lora_adapter, /v1/unload_lora_adapter
// Answers have more fields than OpenAI's: token ids and sampling_logprobs for each choice; seed, weights_version and profile (its digest).
//   Routes routes; add_openai_routes(routes, service);
#pragma once
#include "api/routes.h"
#include "serving/deployments.h"

namespace lockstep {

class HeldStreams;

// `streams`: the table of held streams, shared with other protocols' routes, so that POST /v1/streams/{id} finds theirs too; null: its own.
void add_openai_routes(Routes& routes, std::shared_ptr<const Deployments> deployments, std::shared_ptr<HeldStreams> streams = nullptr);
// Of one model alone.
void add_openai_routes(Routes& routes, std::shared_ptr<GenerationService> service);

}  // namespace lockstep
