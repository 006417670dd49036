// Limits the requests and tokens of an API key per minute (tokens of prompts, answers and training batches). With 60 requests a minute a key gains one each
// second, up to 60. Tokens are counted when the work is done, so that a key may overdraw; it is then refused until its allowance is positive again. Knows
// no route and no clock of its own. Any thread.
//   RateLimits rates; rates.set(keys.terms()); if (auto refused = rates.take(key)) ...; rates.use(key, tokens);
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "api/api_keys.h"
#include "api/exchange.h"
#include "observe/prometheus.h"

namespace lockstep {

class RateLimits {
 public:
  using Now = std::function<double()>;  // seconds of a steady clock
  explicit RateLimits(Now now = {});    // {}: the system's

  // Sets the limits of all keys; a key keeps what it has used of a limit that it had before.
  void set(const std::map<std::string, KeyTerms>& terms);
  // The headers x-ratelimit-... of an answer to a request that comes now, as OpenAI's clients read them; none for a key without limits.
  HeaderList headers(const std::string& key) const;
  // 429 with Retry-After, or empty: a request that comes now is within its key's limits. take() also counts it if it is.
  std::optional<ApiResponse> refusal(const std::string& key) const;
  std::optional<ApiResponse> take(const std::string& key);
  void use(const std::string& key, std::int64_t tokens);
  void append_metrics(PrometheusText& text) const;

 private:
  struct Allowance {
    double most = 0;  // per minute; 0: no limit
    double left = 0, as_of = 0;
    double left_at(double now) const;
    void spend(double amount, double now);
    void limit(std::int64_t a_minute, double now);
  };
  struct Key {
    Allowance requests, tokens;
  };
  static std::optional<ApiResponse> refusal_of(const Key& key, double now);

  const Now now_;
  mutable std::mutex mutex_;
  std::map<std::string, Key> keys_;
};

}  // namespace lockstep
