// Runs POST /v1/completions: prompts become tokens, and the completion starts. Any thread.
//   answer_completion(service, decode_completion(body), owner, responder, long_writer, streams);
#pragma once
#include "api/exchange.h"
#include "api/openai/completion_request.h"

namespace lockstep {

class Worker;
class HeldStreams;
struct AdapterWeights;

// `owner`: whose key the request has; cached prompts are its own. `long_writer`, `streams`: as AnswerOrder's. Errors as AnswerRun::start; then the
// responder has not been used.
void answer_completion(const std::shared_ptr<GenerationService>& service, CompletionRequest request, const std::string& owner,
                       const std::shared_ptr<Responder>& responder, const std::weak_ptr<Worker>& long_writer, const std::weak_ptr<HeldStreams>& streams);

// The adapter that `model` names; null: it names the model itself. Error not_found with the code model_not_found.
std::shared_ptr<const AdapterWeights> require_model(const GenerationService& service, const std::string& model, const std::string& field = "model");

}  // namespace lockstep
