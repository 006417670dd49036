#include "host/session_life.h"

#include "base/error.h"

namespace lockstep {

std::string SessionLife::create(const std::string& owner, const SessionRecord& wanted) {
  retention_.look();
  commons_.intake.enter().check();
  if (const std::string same = sessions_.again(owner, wanted); !same.empty()) return same;
  commons_.metadata.check("user_metadata", wanted.user_metadata);
  commons_.metadata.check("tags", wanted.tags);
  const auto room = commons_.metadata.hold(owner, wanted.user_metadata.bytes() + wanted.tags.bytes());
  check_short_text("display_name", wanted.display_name);
  check_short_text("project_id", wanted.project);
  return sessions_.create(owner, wanted);
}

void SessionLife::hear(const std::string& owner, const std::string& id) {
  if (!sessions_.hear(owner, id)) fail(ErrorCode::not_found, "there is no session '{}'", id);
  retention_.look();
}

void SessionLife::finish(const std::string& owner, const std::string& session, const std::string& status, const std::string& detail) {
  sessions_.finish(owner, session, status, detail);
  const Intake::Entry entry = commons_.intake.enter();
  if (entry.is_open()) retention_.rest_silent();
}

}  // namespace lockstep
