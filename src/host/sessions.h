// The registry of sessions: each is stored before it is visible, and has the time of its last heartbeat. It has locks of its own. Owners do not see
// each other's. Any thread.
//   Sessions sessions(store, KeyLimit(1024, 50)); const std::string id = sessions.create("ann", {}); sessions.find("ann", id);
#pragma once
#include <map>
#include <vector>

#include "base/guarded.h"
#include "host/heard_sessions.h"
#include "host/key_limit.h"
#include "host/record_writer.h"
#include "host/training_records.h"
#include "store/training_store.h"

namespace lockstep {

class Sessions {
 public:
  Sessions(std::shared_ptr<TrainingStore> store, const KeyLimit& limit, SteadyClock clock = &std::chrono::steady_clock::now);

  // The one that was made under the same idempotency key, which is heard; none: empty.
  std::string again(const std::string& owner, const SessionRecord& wanted);
  // wanted.id is what the id begins with. The one that again() tells of, where there is one by now. Errors: resource_exhausted; the store's.
  std::string create(const std::string& owner, SessionRecord wanted);
  // Whoever asks for it is heard. Error not_found.
  SessionRecord find(const std::string& owner, const std::string& id);
  std::vector<SessionRecord> all(const std::string& owner) const;                            // newest first
  void assign(const std::string& owner, const std::string& id, const std::string& project);  // errors: invalid_argument, not_found
  // The first reason stays. Errors: invalid_argument, not_found.
  void finish(const std::string& owner, const std::string& id, const std::string& status, const std::string& detail);

  // Before new work in it. Error invalid_argument: it has finished. Waits for nobody who writes.
  void check_takes_work(const std::string& id) const;
  // False: there is none, or it is another owner's. Waits for nobody who writes.
  bool hear(const std::string& owner, const std::string& id) { return heard_.hear(id, owner); }
  bool is_finished(const std::string& id) const { return heard_.is_finished(id); }  // one that is not there is not
  // Not heard for so long; one that is not there too.
  bool is_silent(const std::string& id, double seconds) const { return heard_.is_silent(id, seconds); }
  // Those of anyone that were not heard for so long. Whoever removes them calls begin_removal first, does what must be done before they are gone,
  // and erases them: a server that is killed between finds them again.
  std::vector<SessionRecord> silent(double seconds) const;
  bool begin_removal(const std::string& id, double seconds) { return heard_.remove_silent(id, seconds); }  // false: it was heard, and stays
  void erase(const std::string& id);

  std::string job_of(const std::string& id) const;  // the trainer job that it was made through; empty: none
  std::size_t count() const;
  // Calls what(owner, bytes of tags and user_metadata) for each.
  template <class What>
  void each_metadata(const What& what) const {
    const auto state = state_.lock();
    for (const auto& [id, one] : state->sessions) what(one.owner, one.tags.bytes() + one.user_metadata.bytes());
  }

 private:
  struct State {
    std::map<std::string, SessionRecord> sessions;
    std::map<std::pair<std::string, std::string>, std::string> by_key;  // owner, idempotency key
  };
  std::string of_key(const State& state, const std::string& owner, const SessionRecord& wanted);
  static SessionRecord& at(State& state, const std::string& owner, const std::string& id);  // error not_found
  SessionRecord copy(const std::string& owner, const std::string& id);                      // error not_found
  void store(const SessionRecord& record) { store_->put("session", record.id, to_json(record).dump()); }

  const std::shared_ptr<TrainingStore> store_;
  const KeyLimit limit_;
  HeardSessions heard_;
  RecordWriter writer_;  // of sessions in the store; the state's lock is not held while it waits for the disk
  Guarded<State> state_;
};

}  // namespace lockstep
