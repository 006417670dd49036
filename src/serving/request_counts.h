// Counts requests of a generation service: for metrics (serving/statistics.h), and the tokens of each API key for its limits.
//   counts.taken(owner, 1, prompt_tokens); CountedRequest one{owner, taken}; counts.begun(on, one); counts.told(on, one); counts.ended(on, one, generation);
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "engine/generation.h"
#include "engine/request.h"
#include "serving/on_executor.h"
#include "serving/request_bounds.h"
#include "serving/resumption.h"
#include "serving/statistics.h"

namespace lockstep {

// An open request.
struct CountedRequest {
  RequestOwner owner;
  std::chrono::steady_clock::time_point taken;
  std::size_t told = 0;                       // tokens, as they came
  std::optional<GenerationTimes> times = {};  // of the first part, where it was held
  std::chrono::steady_clock::time_point told_at = {};
};

class RequestCounts {
 public:
  // `count_tokens`: as ServingOptions.
  RequestCounts(ServiceStatistics& statistics, std::function<void(const std::string& key, std::int64_t tokens)> count_tokens)
      : statistics_(statistics), count_tokens_(std::move(count_tokens)) {}

  // That many requests of one owner were submitted. Any thread.
  void taken(const RequestOwner& owner, std::size_t requests, std::size_t prompt_tokens);
  // A request has its first rows; a token was delivered; it has ended.
  void begun(const OnExecutor& on, const CountedRequest& request);
  void told(const OnExecutor& on, CountedRequest& request);
  // It was held behind this part; and goes on.
  void held(const OnExecutor& on, CountedRequest& request, const Generation& part);
  void resumed(const OnExecutor& on, CountedRequest& request, const Resumption& resumption);
  void ended(const OnExecutor& on, const CountedRequest& request, Generation& generation);

 private:
  void count_tokens(const RequestOwner& owner, std::size_t tokens) const;

  ServiceStatistics& statistics_;
  const std::function<void(const std::string& key, std::int64_t tokens)> count_tokens_;
};

}  // namespace lockstep
