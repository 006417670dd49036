// What the engine accepts: every value of a request and of the options is checked here, once, before anything is kept.
// Any thread.
//   check_request(request, limits);
#pragma once
#include "engine/options.h"
#include "engine/request.h"
#include "model/model.h"

namespace lockstep {

struct RequestLimits {
  std::int64_t vocabulary = 0;
  std::int64_t max_positions = 0;    // of the runtime
  std::int64_t cache_positions = 0;  // pages * page_size
};

// Throws invalid_argument with the field, the value got and the values allowed.
void check_request(const Request& request, const RequestLimits& limits);
void check_tokens(const char* field, const std::vector<std::int32_t>& tokens, std::int64_t vocabulary);
void check_options(const EngineOptions& options);
// Weights of another model or profile than the runtime's.
void check_weights(const WeightSet& weights, const Model& model, const Profile& profile);

}  // namespace lockstep
