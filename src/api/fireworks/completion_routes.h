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
  bool guesses = true;        // false: it is guessed ahead only when it says so itself
  AnswerHold hold = {};       // where a stream that is held is found; its seconds are the request's
  std::string identity = {};  // of the snapshot that the weights are of; empty: of none, or the service knows (serving/version_names.h)
};

// What a server that stops says to completions: the package waits and asks again, where other servers may answer.
inline constexpr int kDrainingStatus = 425;

// Null weights: the service's. Errors: as AnswerRun::start.
void complete_fireworks(const FireworksCaller& caller, const std::shared_ptr<GenerationService>& generation, FireworksCompletion&& wanted,
                        std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter, const ExpertShape& experts);

}  // namespace lockstep
