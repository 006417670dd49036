#include "host/sessions.h"

#include <algorithm>

#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"

namespace lockstep {

Sessions::Sessions(std::shared_ptr<TrainingStore> store, const KeyLimit& limit, SteadyClock clock)
    : store_(std::move(store)), limit_(limit), heard_(std::move(clock)) {
  store_->each("session", [&](const std::string& id, const std::string& document) {
    SessionRecord record = session_record(TrainingJson::parse(document));
    if (!record.idempotency_key.empty()) by_key_[{record.owner, record.idempotency_key}] = id;
    heard_.add(id, record.owner, record.seen);
    if (record.status != "active") heard_.finish(id);
    sessions_[id] = std::move(record);
  });
}

std::string Sessions::again(const std::string& owner, const SessionRecord& wanted) {
  const std::lock_guard lock(mutex_);
  return of_key(owner, wanted);
}

std::string Sessions::of_key(const std::string& owner, const SessionRecord& wanted) {
  if (wanted.idempotency_key.empty()) return {};
  const auto same = by_key_.find({owner, wanted.idempotency_key});
  return same != by_key_.end() && heard_.hear(same->second, owner) ? same->second : std::string();
}

std::string Sessions::create(const std::string& owner, SessionRecord wanted) {
  std::string id;
  writer_.change([&] {
    {
      const std::lock_guard lock(mutex_);
      id = of_key(owner, wanted);
      if (!id.empty()) return;  // another was faster
      const auto own = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& one) { return one.second.owner == owner; });
      limit_.check_room(static_cast<std::int64_t>(sessions_.size()), own, "sessions");
    }
    id = wanted.id += hex64(random_bits());
    wanted.owner = owner;
    wanted.created = wanted.seen = unix_now();
    keep(wanted);
    const std::lock_guard lock(mutex_);
    if (!wanted.idempotency_key.empty()) by_key_[{owner, wanted.idempotency_key}] = id;
    sessions_[id] = std::move(wanted);
    heard_.add(id, owner, unix_now());
  });
  return id;
}

SessionRecord Sessions::copy(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  return at(owner, id);
}

SessionRecord& Sessions::at(const std::string& owner, const std::string& id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.owner != owner) fail(ErrorCode::not_found, "there is no session '{}'", id);
  return found->second;
}

SessionRecord Sessions::find(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (!heard_.hear(id, owner)) fail(ErrorCode::not_found, "there is no session '{}'", id);  // nor is there one that is being removed
  SessionRecord found = at(owner, id);
  found.seen = heard_.seen(id);
  return found;
}

std::vector<SessionRecord> Sessions::all(const std::string& owner) const {
  const std::lock_guard lock(mutex_);
  std::vector<SessionRecord> out;
  for (const auto& [id, record] : sessions_)
    if (record.owner == owner) {
      out.push_back(record);
      out.back().seen = heard_.seen(id);
    }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.created > b.created; });
  return out;
}

void Sessions::assign(const std::string& owner, const std::string& id, const std::string& project) {
  check_short_text("project_id", project);
  writer_.change([&] {
    SessionRecord record = copy(owner, id);
    record.project = project;
    keep(record);
    const std::lock_guard lock(mutex_);
    at(owner, id).project = project;
  });
}

void Sessions::finish(const std::string& owner, const std::string& id, const std::string& status, const std::string& detail) {
  check_short_text("reason.type", status);
  check_short_text("detail", detail);
  writer_.change([&] {
    SessionRecord record = copy(owner, id);
    if (record.status != "active") return;
    record.status = status;
    record.finish_detail = detail;
    keep(record);
    const std::lock_guard lock(mutex_);
    at(owner, id) = std::move(record);
    heard_.finish(id);
  });
}

void Sessions::check_takes_work(const std::string& id) const {
  if (is_finished(id))
    fail(ErrorCode::invalid_argument, "session '{}' has finished and takes no more work; allowed is a session that create_session makes", id);
}

std::vector<SessionRecord> Sessions::silent(double seconds) const {
  const std::lock_guard lock(mutex_);
  std::vector<SessionRecord> out;
  for (const auto& [id, record] : sessions_)
    if (heard_.is_silent(id, seconds)) out.push_back(record);
  return out;
}

void Sessions::erase(const std::string& id) {
  writer_.change([&] {
    store_->remove("session", id);
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    const auto key = by_key_.find({found->second.owner, found->second.idempotency_key});
    if (key != by_key_.end() && key->second == id) by_key_.erase(key);
    sessions_.erase(found);
  });
}

std::string Sessions::job_of(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? std::string() : found->second.job;
}

std::size_t Sessions::count() const {
  const std::lock_guard lock(mutex_);
  return sessions_.size();
}

}  // namespace lockstep
