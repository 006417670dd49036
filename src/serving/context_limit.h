// The longest request a service accepts: the least of what the model reads and what the cache holds, and which option raises it. Any thread.
//   longest_request(service.limits())   // what GET /v1/models announces
#pragma once
#include <algorithm>
#include <string>

#include "engine/admission.h"

namespace lockstep {

struct OpenedModel;

// Tokens of a request, prompt and answer.
inline std::int64_t longest_request(const RequestLimits& limits) { return std::min(limits.max_positions, limits.cache_positions); }

// Bytes that the cache of an engine with these options takes for one position of the model.
std::int64_t position_bytes_of(const OpenedModel& opened, const EngineOptions& engine);

// "context: 8192 tokens a request; the cache of 512.0 MB holds 2 requests of that length at a time (--cache-megabytes makes it larger)", in one line.
// `model_positions`: the context of the model's config; `position_bytes`: position_bytes_of(); `most_requests`: how many
// run at a time whatever the cache holds.
std::string context_sentence(const RequestLimits& limits, std::int64_t model_positions, std::int64_t position_bytes, std::int64_t most_requests);

}  // namespace lockstep
