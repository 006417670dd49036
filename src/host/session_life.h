// Creates, renews (heartbeats) and ends sessions. Each of these calls also lets host/retention.h clean up. Any thread.
//   const std::string session = life.create(owner, {}); life.hear(owner, session); life.finish(owner, session, "finished: success", "");
#pragma once
#include <string>

#include "host/retention.h"

namespace lockstep {

class SessionLife {
 public:
  SessionLife(TrainingCommons& commons, Sessions& sessions, Retention& retention) : commons_(commons), sessions_(sessions), retention_(retention) {}

  // wanted.id is what the id begins with. The one that was made under the same idempotency key is the same. Errors: cancelled, invalid_argument,
  // resource_exhausted.
  std::string create(const std::string& owner, const SessionRecord& wanted);
  // Waits for nobody's disk. Error not_found.
  void hear(const std::string& owner, const std::string& session);
  // The first reason stays; its models leave memory. Errors: Sessions::finish.
  void finish(const std::string& owner, const std::string& session, const std::string& status, const std::string& detail);

 private:
  TrainingCommons& commons_;
  Sessions& sessions_;
  Retention& retention_;
};

}  // namespace lockstep
