// The HTTP API that OpenAI's clients speak, over a generation service, as rows of Routes:
//   GET /v1/models   POST /v1/completions
// Beyond OpenAI's answer: token_ids and sampling_logprobs a choice; seed, weights_version and profile (its digest).
// Knows no socket. Any thread.
//   Routes routes; add_openai_routes(routes, service);
#pragma once
#include "api/routes.h"
#include "service/serving.h"

namespace lockstep {

void add_openai_routes(Routes& routes, std::shared_ptr<GenerationService> service);

}  // namespace lockstep
