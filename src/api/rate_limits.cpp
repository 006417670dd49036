#include "api/rate_limits.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "api/errors.h"

namespace lockstep {
namespace {
constexpr double kMinute = 60;

double system_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// OpenAI's form of a duration: "17ms", "1.5s", "6m0s".
std::string duration_text(double seconds) {
  if (seconds < 1) return fmt::format("{}ms", static_cast<std::int64_t>(std::ceil(seconds * 1000)));
  const double tenths = std::ceil(seconds * 10) / 10;
  const auto minutes = static_cast<std::int64_t>(tenths / 60);
  return minutes > 0 ? fmt::format("{}m{:.0f}s", minutes, std::floor(tenths - 60.0 * static_cast<double>(minutes))) : fmt::format("{:g}s", tenths);
}

ApiResponse refused(const char* what, double used, double most, double wait, const char* setting) {
  const auto seconds = static_cast<std::int64_t>(std::ceil(std::max(wait, 1e-3)));
  ApiResponse response = error_response(
      RequestError(ErrorCode::resource_exhausted, {},
                   fmt::format("this API key has used {:.0f} {} of this minute, allowed are {:.0f} a minute ({} in the key file); try again in {} s", used,
                               what, most, setting, seconds),
                   429));
  for (auto& [name, value] : response.headers)
    if (name == "Retry-After") value = std::to_string(seconds);
  return response;
}
}  // namespace

double RateLimits::Allowance::left_at(double now) const { return std::min(most, left + (now - as_of) * most / kMinute); }

void RateLimits::Allowance::spend(double amount, double now) {
  left = left_at(now) - amount;
  as_of = now;
}

void RateLimits::Allowance::limit(std::int64_t a_minute, double now) {
  const auto wanted = static_cast<double>(a_minute);
  left = most > 0 ? std::min(left_at(now), wanted) : wanted;
  most = wanted;
  as_of = now;
}

RateLimits::RateLimits(Now now) : now_(now ? std::move(now) : Now(system_seconds)) {}

void RateLimits::set(const std::map<std::string, KeyTerms>& terms) {
  const double now = now_();
  const std::lock_guard lock(mutex_);
  std::erase_if(keys_, [&](const auto& one) { return !terms.contains(one.first); });
  for (const auto& [name, its] : terms) {
    if (its.requests_per_minute == 0 && its.tokens_per_minute == 0) {
      keys_.erase(name);
      continue;
    }
    Key& key = keys_[name];
    key.requests.limit(its.requests_per_minute, now);
    key.tokens.limit(its.tokens_per_minute, now);
  }
}

HeaderList RateLimits::headers(const std::string& name) const {
  const double now = now_();
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(name);
  HeaderList headers;
  if (found == keys_.end()) return headers;
  const auto tell = [&](const char* what, const Allowance& its, double more) {
    if (its.most == 0) return;
    const double left = std::max(0.0, its.left_at(now) - more);
    headers.emplace_back(fmt::format("x-ratelimit-limit-{}", what), fmt::format("{:.0f}", its.most));
    headers.emplace_back(fmt::format("x-ratelimit-remaining-{}", what), fmt::format("{:.0f}", std::floor(left)));
    headers.emplace_back(fmt::format("x-ratelimit-reset-{}", what), duration_text((its.most - its.left_at(now) + more) * kMinute / its.most));
  };
  tell("requests", found->second.requests, refusal_of(found->second, now) ? 0 : 1);
  tell("tokens", found->second.tokens, 0);
  return headers;
}

std::optional<ApiResponse> RateLimits::refusal_of(const Key& key, double now) {
  // Seconds times a rate is rounded, so a millionth less than a whole request or token counts as one.
  constexpr double kNothing = 1e-6;
  const Allowance &requests = key.requests, &tokens = key.tokens;
  const auto used = [&](const Allowance& its) { return std::ceil(its.most - its.left_at(now) - kNothing); };
  if (requests.most > 0 && requests.left_at(now) < 1 - kNothing)
    return refused("requests", used(requests), requests.most, (1 - requests.left_at(now)) * kMinute / requests.most, "requests_per_minute");
  if (tokens.most > 0 && tokens.left_at(now) < 1 - kNothing)
    return refused("tokens", used(tokens), tokens.most, (1 - tokens.left_at(now)) * kMinute / tokens.most, "tokens_per_minute");
  return std::nullopt;
}

std::optional<ApiResponse> RateLimits::refusal(const std::string& name) const {
  const double now = now_();
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(name);
  return found != keys_.end() ? refusal_of(found->second, now) : std::nullopt;
}

std::optional<ApiResponse> RateLimits::take(const std::string& name) {
  const double now = now_();
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(name);
  if (found == keys_.end()) return std::nullopt;
  auto refusal = refusal_of(found->second, now);
  if (!refusal) found->second.requests.spend(1, now);
  return refusal;
}

void RateLimits::use(const std::string& name, std::int64_t tokens) {
  const double now = now_();
  const std::lock_guard lock(mutex_);
  if (const auto found = keys_.find(name); found != keys_.end()) found->second.tokens.spend(static_cast<double>(tokens), now);
}

void RateLimits::append_metrics(PrometheusText& text) const {
  const double now = now_();
  const std::lock_guard lock(mutex_);
  text.family("lockstep_rate_left", "gauge", "What a key with a rate limit may still use now; below 0: so much it waits for.");
  for (const auto& [name, key] : keys_) {
    if (key.requests.most > 0) text.sample({{"key", name}, {"limit", "requests"}}, key.requests.left_at(now));
    if (key.tokens.most > 0) text.sample({{"key", name}, {"limit", "tokens"}}, key.tokens.left_at(now));
  }
}

}  // namespace lockstep
