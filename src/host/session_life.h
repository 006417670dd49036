// Creates, renews (heartbeats) and ends sessions. Each of these calls also lets host/retention.h clean up. Any thread.
//   const std::string session = life.create(owner, {}); life.hear(owner, session); life.finish(owner, session, "finished: success", "");
#pragma once
#include <string>

#include "host/retention.h"

namespace lockstep {

class SessionLife {
 public:
  SessionLife(TrainingCommons& commons, Sessions& sessions, Retention& retention) : commons_(commons), sessions_(sessions), retention_(retention) {}

  // wanted.id is the prefix of the id. The same idempotency key returns the same session. Errors: cancelled, invalid_argument, resource_exhausted.
  std::string create(const std::string& owner, const SessionRecord& wanted);
  // A heartbeat; waits for no disk. Error not_found.
  void hear(const std::string& owner, const std::string& session);
  // The first reason stays; its models are moved to disk. Errors: Sessions::finish.
  void finish(const std::string& owner, const std::string& session, const std::string& status, const std::string& detail);

 private:
  TrainingCommons& commons_;
  Sessions& sessions_;
  Retention& retention_;
};

}  // namespace lockstep
