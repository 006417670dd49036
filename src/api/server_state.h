// State that a server shares with routes that report it: whether it is shutting down, and counters of requests. Knows no socket and no route. Any
// thread.
//   state->end({.route = "/v1/models", .method = "GET", .status = 200, .seconds = seconds}); state->append_metrics(text);
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "observe/prometheus.h"

namespace lockstep {

class ServerState {
 public:
  using Clock = std::chrono::steady_clock;

  // True: no new work is taken; running requests finish. Never false again.
  std::atomic<bool> draining{false};
  std::atomic<std::int64_t> connections{0}, open_requests{0};
  std::atomic<std::uint64_t> connections_total{0}, bytes_sent{0}, bytes_received{0};
  std::atomic<std::uint64_t> streams_dropped{0};  // closed because their clients did not read

  struct Ended {
    std::string_view route, method;
    int status = 0;
    double seconds = 0;
    double first_byte_seconds = -1;  // of a stream; below 0: no stream was begun
    bool left = false;               // the client went before its answer ended
  };
  void end(const Ended& ended);

  // Retry-After of a 429: seconds until a place may be free, estimated from how long requests take and how many were refused lately.
  int retry_after_seconds() const;
  void append_metrics(PrometheusText& text) const;
  // Adds metrics of another part to append_metrics(). Call before the server runs.
  void add_metrics(std::function<void(PrometheusText&)> append) { more_metrics_.push_back(std::move(append)); }

 private:
  struct Route {
    Histogram seconds{Histogram::second_bounds()}, first_byte{Histogram::second_bounds()};
    std::uint64_t left = 0;
  };
  std::vector<std::function<void(PrometheusText&)>> more_metrics_;
  mutable std::mutex mutex_;
  std::map<std::string, Route, std::less<>> routes_;
  std::map<std::tuple<std::string, std::string, int>, std::uint64_t, std::less<>> counts_;  // route, method, status
  double mean_seconds_ = 0;                                                                 // of requests above 5 ms, recent ones weigh most
  double recent_refusals_ = 0;                                                              // halves every few seconds
  Clock::time_point last_refusal_{};
  std::int64_t open_at_refusal_ = 1;
};

// A method of HTTP, or "other": a label that no client chooses.
std::string_view known_method(std::string_view method);

}  // namespace lockstep
