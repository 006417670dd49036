// POST /inference/v1/completions: token ids or a text in; token ids and both log-probabilities of each out, whole or as a stream. The caller passes
// the weights that the request means: a training server (add_completion_routes) or a server without a trainer (api/fireworks/model_completions.h).
// A stream may be held on the way (POST /v1/streams/{id}), as those of OpenAI's routes. Any thread.
//   complete_fireworks({.owner = owner, .out = out}, service, decode_fireworks_completion(json), weights, adapter, experts);
#pragma once
#include "api/fireworks/completion_request.h"
#include "api/openai/answer_run.h"

namespace lockstep {

struct FireworksCaller {
  std::string request_id, owner;
  std::chrono::steady_clock::time_point came = std::chrono::steady_clock::now();  // before it waited to be read
  std::shared_ptr<Responder> out;
  std::weak_ptr<Worker> long_writer = {};
  bool guesses = true;        // false: speculative decoding only if the request has its fields
  AnswerHold hold = {};       // for a held stream; its `seconds` are taken from the request
  std::string identity = {};  // of the weights' snapshot; empty: from none, or the service knows it (serving/version_names.h)
  bool trains = false;        // the weights are a checkpoint of the caller's own: what is computed is kept for its training, unless it says otherwise
};

// Status of completions on a server that stops: the package then waits and asks again, and another server may answer.
inline constexpr int kDrainingStatus = 425;

// Null weights: the service's. Errors: as AnswerRun::start.
void complete_fireworks(const FireworksCaller& caller, const std::shared_ptr<GenerationService>& generation, FireworksCompletion&& wanted,
                        std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter, const ExpertShape& experts);

}  // namespace lockstep
