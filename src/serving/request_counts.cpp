#include "serving/request_counts.h"

#include "base/seconds.h"

namespace lockstep {
namespace {
void count_end(FinishReason reason, ServiceStatistics& statistics) {
  switch (reason) {
    case FinishReason::stop:
      ++statistics.stopped;
      break;
    case FinishReason::length:
      ++statistics.length;
      break;
    case FinishReason::none:
    case FinishReason::cancelled:
      ++statistics.cancelled;
      break;
    case FinishReason::error:
      ++statistics.failed;
      break;
  }
}
}  // namespace

void RequestCounts::count_tokens(const RequestOwner& owner, std::size_t tokens) const {
  if (count_tokens_ && owner.is_stream && tokens > 0) count_tokens_(owner.account->key, static_cast<std::int64_t>(tokens));
}

void RequestCounts::taken(const RequestOwner& owner, std::size_t requests, std::size_t prompt_tokens) {
  statistics_.requests += requests;
  statistics_.prompt_tokens += prompt_tokens;
  count_tokens(owner, prompt_tokens);
}

void RequestCounts::begun(const OnExecutor&, const CountedRequest& request) { ++statistics_.of(request.owner.account->work).requests; }

void RequestCounts::told(const OnExecutor&, CountedRequest& request) {
  statistics_.generated_tokens.fetch_add(1, std::memory_order_relaxed);
  ClassStatistics& of_class = statistics_.of(request.owner.account->work);
  const double seconds = seconds_since(request.told > 0 ? request.told_at : request.taken);
  if (request.told == 0) statistics_.first_token_seconds.observe(seconds);
  (request.told++ == 0 ? of_class.first_token_seconds : of_class.token_gap_seconds).observe(seconds);
  request.told_at = std::chrono::steady_clock::now();
}

void RequestCounts::held(const OnExecutor&, CountedRequest& request, const Generation& part) {
  if (!request.times) request.times = part.times;
  count_tokens(request.owner, part.tokens.size());
  statistics_.of(request.owner.account->work).tokens.fetch_add(part.tokens.size(), std::memory_order_relaxed);
  ++statistics_.holds;
  ++statistics_.held;
}

// Nobody waited for a token while it was held.
void RequestCounts::resumed(const OnExecutor&, CountedRequest& request, const Resumption& resumption) {
  request.told_at = std::chrono::steady_clock::now();
  --statistics_.held;
  statistics_.roll_backs += resumption.rolled_back;
  statistics_.put_in_tokens += resumption.put_in;
}

// Callers that want the whole at the end alone were told no token.
void RequestCounts::ended(const OnExecutor&, const CountedRequest& request, Generation& generation) {
  const std::size_t tokens = generation.tokens.size();
  if (request.times) generation.times = *request.times;
  generation.times.taken = request.taken;
  const auto seconds_to = [&](GenerationTimes::Point point) { return std::chrono::duration<double>(point - request.taken).count(); };
  if (generation.times.began != GenerationTimes::Point{}) statistics_.queue_seconds.observe(seconds_to(generation.times.began));
  if (request.told == 0 && tokens > 0) statistics_.first_token_seconds.observe(seconds_to(generation.times.first_token));
  if (tokens > request.told) statistics_.generated_tokens.fetch_add(tokens - request.told, std::memory_order_relaxed);
  count_tokens(request.owner, tokens);
  statistics_.of(request.owner.account->work).tokens.fetch_add(tokens, std::memory_order_relaxed);
  count_end(generation.finish, statistics_);
  statistics_.seconds.observe(seconds_since(request.taken));
}

}  // namespace lockstep
