#include "api/server_state.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {
constexpr double kWorkSeconds = 0.005;  // a request that took less did not wait for the model
constexpr double kWeightOfNewest = 0.05;
constexpr double kHalfLifeSeconds = 4;  // of the count of refusals
constexpr int kMostRetrySeconds = 60;

double decayed(double count, ServerState::Clock::time_point since, ServerState::Clock::time_point now) {
  return count * std::exp2(-std::chrono::duration<double>(now - since).count() / kHalfLifeSeconds);
}
}  // namespace

std::string_view known_method(std::string_view method) {
  for (std::string_view known : {"GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"})
    if (method == known) return known;
  return "other";
}

void ServerState::end(const Ended& ended) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  auto route = routes_.find(ended.route);
  if (route == routes_.end()) route = routes_.try_emplace(std::string(ended.route)).first;
  route->second.seconds.observe(ended.seconds);
  if (ended.first_byte_seconds >= 0) route->second.first_byte.observe(ended.first_byte_seconds);
  route->second.left += ended.left;
  ++counts_[{std::string(ended.route), std::string(known_method(ended.method)), ended.status}];
  if (ended.status == 429) {
    recent_refusals_ = decayed(recent_refusals_, last_refusal_, now) + 1;
    last_refusal_ = now;
    open_at_refusal_ = std::max<std::int64_t>(1, open_requests.load());
  } else if (ended.status < 300 && ended.seconds > kWorkSeconds) {
    mean_seconds_ = mean_seconds_ == 0 ? ended.seconds : mean_seconds_ + kWeightOfNewest * (ended.seconds - mean_seconds_);
  }
}

// With N open requests that take T seconds each, a place becomes free every T/N seconds; those refused lately will ask for it too.
int ServerState::retry_after_seconds() const {
  const std::lock_guard lock(mutex_);
  const double waiting = 1 + decayed(recent_refusals_, last_refusal_, Clock::now());
  const auto open = static_cast<double>(std::max<std::int64_t>(open_requests.load(), open_at_refusal_));
  return static_cast<int>(std::clamp(std::ceil(waiting * mean_seconds_ / open), 1.0, static_cast<double>(kMostRetrySeconds)));
}

void ServerState::append_metrics(PrometheusText& text) const {
  for (const auto& append : more_metrics_) append(text);
  text.family("lockstep_http_requests_total", "counter", "Requests answered.");
  const std::lock_guard lock(mutex_);
  for (const auto& [key, count] : counts_) {
    const auto& [route, method, status] = key;
    text.sample({{"route", route}, {"method", method}, {"status", std::to_string(status)}}, static_cast<double>(count));
  }
  text.family("lockstep_http_request_seconds", "histogram", "From a request's headers to the end of its answer.");
  for (const auto& [name, route] : routes_) text.histogram({{"route", name}}, route.seconds);
  text.family("lockstep_http_first_byte_seconds", "histogram", "From a request's headers to the first bytes of its stream.");
  for (const auto& [name, route] : routes_)
    if (route.first_byte.count() > 0) text.histogram({{"route", name}}, route.first_byte);
  text.family("lockstep_http_clients_left_total", "counter", "Requests whose client went before the answer ended.");
  for (const auto& [name, route] : routes_) text.sample({{"route", name}}, static_cast<double>(route.left));
  const auto one = [&](std::string_view name, std::string_view type, std::string_view help, double value) {
    text.family(name, type, help);
    text.sample({}, value);
  };
  one("lockstep_http_open_requests", "gauge", "Requests that wait for the end of their answer.", static_cast<double>(open_requests.load()));
  one("lockstep_http_connections", "gauge", "Open connections.", static_cast<double>(connections.load()));
  one("lockstep_http_connections_total", "counter", "Connections accepted.", static_cast<double>(connections_total.load()));
  one("lockstep_http_sent_bytes_total", "counter", "Bytes of answers.", static_cast<double>(bytes_sent.load()));
  one("lockstep_http_received_bytes_total", "counter", "Bytes of requests.", static_cast<double>(bytes_received.load()));
  one("lockstep_http_streams_dropped_total", "counter", "Streams ended because their client did not read.", static_cast<double>(streams_dropped.load()));
  one("lockstep_http_draining", "gauge", "1 while the server takes no new work.", draining.load() ? 1 : 0);
}

}  // namespace lockstep
