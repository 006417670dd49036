// Records when each session was last heard from, and whether it has finished. It has a lock of its own, so that a heartbeat never waits for a checkpoint.
// Times are of a monotonic clock, which begins anew with each start of the server. Any thread.
//   HeardSessions heard; heard.add("s-1", "ann", unix_now()); if (!heard.hear("s-1", "ann")) ...
#pragma once
#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>

#include "host/training_options.h"

namespace lockstep {

class HeardSessions {
 public:
  using Clock = std::chrono::steady_clock;
  explicit HeardSessions(SteadyClock now = &Clock::now) : now_(std::move(now)) {}
  void add(const std::string& session, const std::string& owner, double unix_seconds);  // last heard at that Unix time
  // False: no such session of this owner.
  bool hear(const std::string& session, const std::string& owner);
  double seen(const std::string& session) const;  // Unix seconds; 0: there is none
  void finish(const std::string& session);
  bool is_finished(const std::string& session) const;  // false for an unknown one
  // Not heard from for that long; true for an unknown one.
  bool is_silent(const std::string& session, double seconds) const;
  // Removes it if it was not heard from for that long; later heartbeats fail. False: it was heard, and stays.
  bool remove_silent(const std::string& session, double seconds);

 private:
  struct Session {
    std::string owner;
    double seen;
    Clock::time_point heard;
    bool finished = false;
  };
  bool is_silent(const Session& session, double seconds) const { return std::chrono::duration<double>(now_() - session.heard).count() >= seconds; }

  const SteadyClock now_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Session> sessions_;
};

}  // namespace lockstep
