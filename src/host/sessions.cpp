#include "host/sessions.h"

#include <algorithm>

#include "base/bounded_json.h"
#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"

namespace lockstep {

Sessions::Sessions(std::shared_ptr<TrainingStore> store, const KeyLimit& limit, SteadyClock clock)
    : store_(std::move(store)), limit_(limit), heard_(std::move(clock)) {
  const auto state = state_.lock();
  store_->each("session", [&](const std::string& id, const std::string& document) {
    SessionRecord record = session_record(read_own_json(document));
    if (!record.idempotency_key.empty()) state->by_key[{record.owner, record.idempotency_key}] = id;
    heard_.add(id, record.owner, record.seen);
    if (record.status != "active") heard_.finish(id);
    state->sessions[id] = std::move(record);
  });
}

std::string Sessions::again(const std::string& owner, const SessionRecord& wanted) {
  const auto state = state_.lock();
  return of_key(*state, owner, wanted);
}

std::string Sessions::of_key(const State& state, const std::string& owner, const SessionRecord& wanted) {
  if (wanted.idempotency_key.empty()) return {};
  const auto same = state.by_key.find({owner, wanted.idempotency_key});
  return same != state.by_key.end() && heard_.hear(same->second, owner) ? same->second : std::string();
}

std::string Sessions::create(const std::string& owner, SessionRecord wanted) {
  std::string id;
  writer_.change([&] {
    {
      const auto state = state_.lock();
      id = of_key(*state, owner, wanted);
      if (!id.empty()) return;  // another was faster
      const auto own = std::count_if(state->sessions.begin(), state->sessions.end(), [&](const auto& one) { return one.second.owner == owner; });
      limit_.check_room(static_cast<std::int64_t>(state->sessions.size()), own, "sessions");
    }
    id = wanted.id += hex64(random_bits());
    wanted.owner = owner;
    wanted.created = wanted.seen = unix_now();
    store(wanted);
    const auto state = state_.lock();
    if (!wanted.idempotency_key.empty()) state->by_key[{owner, wanted.idempotency_key}] = id;
    state->sessions[id] = std::move(wanted);
    heard_.add(id, owner, unix_now());
  });
  return id;
}

SessionRecord Sessions::copy(const std::string& owner, const std::string& id) {
  const auto state = state_.lock();
  return at(*state, owner, id);
}

SessionRecord& Sessions::at(State& state, const std::string& owner, const std::string& id) {
  const auto found = state.sessions.find(id);
  if (found == state.sessions.end() || found->second.owner != owner) fail(ErrorCode::not_found, "there is no session '{}'", id);
  return found->second;
}

SessionRecord Sessions::find(const std::string& owner, const std::string& id) {
  const auto state = state_.lock();
  if (!heard_.hear(id, owner)) fail(ErrorCode::not_found, "there is no session '{}'", id);  // nor is there one that is being removed
  SessionRecord found = at(*state, owner, id);
  found.seen = heard_.seen(id);
  return found;
}

std::vector<SessionRecord> Sessions::all(const std::string& owner) const {
  const auto state = state_.lock();
  std::vector<SessionRecord> out;
  for (const auto& [id, record] : state->sessions)
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
    store(record);
    const auto state = state_.lock();
    at(*state, owner, id).project = project;
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
    store(record);
    const auto state = state_.lock();
    at(*state, owner, id) = std::move(record);
    heard_.finish(id);
  });
}

void Sessions::check_takes_work(const std::string& id) const {
  if (is_finished(id))
    fail(ErrorCode::invalid_argument, "session '{}' has finished and takes no more work; allowed is a session that create_session makes", id);
}

std::vector<SessionRecord> Sessions::silent(double seconds) const {
  const auto state = state_.lock();
  std::vector<SessionRecord> out;
  for (const auto& [id, record] : state->sessions)
    if (heard_.is_silent(id, seconds)) out.push_back(record);
  return out;
}

void Sessions::erase(const std::string& id) {
  writer_.change([&] {
    store_->remove("session", id);
    const auto state = state_.lock();
    const auto found = state->sessions.find(id);
    if (found == state->sessions.end()) return;
    const auto key = state->by_key.find({found->second.owner, found->second.idempotency_key});
    if (key != state->by_key.end() && key->second == id) state->by_key.erase(key);
    state->sessions.erase(found);
  });
}

std::string Sessions::job_of(const std::string& id) const {
  const auto state = state_.lock();
  const auto found = state->sessions.find(id);
  return found == state->sessions.end() ? std::string() : found->second.job;
}

std::size_t Sessions::count() const {
  const auto state = state_.lock();
  return state->sessions.size();
}

}  // namespace lockstep
