#include "host/heard_sessions.h"

#include "host/training_records.h"

namespace lockstep {

void HeardSessions::add(const std::string& session, const std::string& owner, double unix_seconds) {
  const std::lock_guard lock(mutex_);
  sessions_[session] = {owner, unix_seconds, now_(), false};
}

bool HeardSessions::hear(const std::string& session, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.owner != owner) return false;
  found->second.heard = now_();
  found->second.seen = unix_now();
  return true;
}

double HeardSessions::seen(const std::string& session) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? 0 : found->second.seen;
}

void HeardSessions::finish(const std::string& session) {
  const std::lock_guard lock(mutex_);
  if (const auto found = sessions_.find(session); found != sessions_.end()) found->second.finished = true;
}

bool HeardSessions::is_finished(const std::string& session) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  return found != sessions_.end() && found->second.finished;
}

bool HeardSessions::is_silent(const std::string& session, double seconds) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() || is_silent(found->second, seconds);
}

bool HeardSessions::remove_silent(const std::string& session, double seconds) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return true;
  if (!is_silent(found->second, seconds)) return false;
  sessions_.erase(found);
  return true;
}

}  // namespace lockstep
