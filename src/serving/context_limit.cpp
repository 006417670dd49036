#include "serving/context_limit.h"

#include <fmt/format.h>

#include "base/memory_ledger.h"
#include "engine/drafts/mtp_steps.h"
#include "serving/loading.h"

namespace lockstep {

std::int64_t position_bytes_of(const OpenedModel& opened, const EngineOptions& engine) {
  return cache_bytes_a_position(*opened.model, opened.runtime->profile, engine);
}

std::string context_sentence(const RequestLimits& limits, std::int64_t model_positions, std::int64_t position_bytes, std::int64_t most_requests) {
  const std::int64_t context = longest_request(limits), together = limits.cache_positions / std::max<std::int64_t>(1, context);
  const std::string cache = megabytes_text(limits.cache_positions * position_bytes);
  std::string text = fmt::format("context: {} tokens a request", context);
  if (context < limits.max_positions)
    return text + fmt::format(", all that the cache of {} holds, and one request of that length at a time; --cache-megabytes {} makes room for one of {}",
                              cache, (limits.max_positions * position_bytes >> 20) + 1, limits.max_positions);
  text += fmt::format("; the cache of {} holds {} request{} of that length at a time{}", cache, together, together == 1 ? "" : "s",
                      together < most_requests ? " (--cache-megabytes makes it larger)" : ", as many as run beside each other");
  if (context < model_positions) text += fmt::format("; the model reads {}: --context {} allows them", model_positions, model_positions);
  return text;
}

}  // namespace lockstep
