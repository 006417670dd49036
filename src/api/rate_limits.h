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
  using Now = std::function<double()>;  // seconds, never fewer than before
  explicit RateLimits(Now now = {});    // {}: the system's

  // The limits from now on; what a key has used of one that stays is kept.
  void set(const std::map<std::string, KeyTerms>& terms);
  // x-ratelimit-..., as OpenAI's clients read them, of the answer to a request that comes now; none for a key without limits.
  HeaderList headers(const std::string& key) const;
  // 429 with Retry-After; nothing: a request that comes now may go on. take() counts it then.
  std::optional<ApiResponse> refusal(const std::string& key) const;
  std::optional<ApiResponse> take(const std::string& key);
  void use(const std::string& key, std::int64_t tokens);
  void append_metrics(PrometheusText& text) const;

 private:
  struct Allowance {
    double most = 0;  // a minute's; 0: no limit
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
