// The registry of checkpoints: owner, client's path, size on disk, expiry. CheckpointFiles reads and writes their folders, CheckpointSnapshots those that are
// snapshots of a store. It has its own lock, under which nothing waits for a disk. Owners see only their own and public ones. Any thread.
//   const CheckpointRecord record = checkpoints.find(owner, "tinker://s1:train:0/weights/step-3"); read(checkpoints.folder(record));
#pragma once
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "host/checkpoint_snapshots.h"
#include "host/control_records.h"
#include "host/recent_texts.h"
#include "host/record_writer.h"
#include "host/stored_records.h"
#include "host/training_commons.h"
#include "host/training_requests.h"

namespace lockstep {

class Sessions;

class Checkpoints {
 public:
  // Loads the store's records. `promoted`: models whose files count towards the same limit.
  Checkpoints(TrainingCommons& commons, Sessions& sessions, const StoredRecords<PromotedModel>& promoted, CheckpointSnapshots& snapshots);

  std::vector<CheckpointRecord> all(const std::string& owner, const std::string& model = {});  // oldest first
  // Those of the models of a job's sessions, oldest first; "local": of sessions without a job.
  std::vector<CheckpointRecord> of_job(const std::string& owner, const std::string& job);
  // `path`: tinker://MODEL/KIND/NAME; ACCOUNT/RUN/NAME; cross_job://JOB/NAME; the bare name of one of `kind`: the newest, of `model` before others';
  // an adapter of the server by name (tinker://adapters/external_weights/NAME). Error not_found.
  CheckpointRecord find(const std::string& owner, const std::string& path, const std::string& kind = "weights", const std::string& model = {});
  bool contains(const std::string& path) const;  // one that has begun, too
  // Its files are complete, or the store has its snapshot: stores the record, so that it survives the server. What it replaces goes.
  void put(const CheckpointRecord& record);
  // One of at most `bytes` is on the way to put(): it has its path and its part of the limits as long as what is returned lives.
  std::shared_ptr<void> begin(const CheckpointRecord& record, std::int64_t bytes);
  // Errors not_found.
  void change(const std::string& owner, const std::string& path, const std::function<void(CheckpointRecord&)>& change);
  void remove(const std::string& owner, const std::string& path);
  // Returns the copy's path.
  std::string copy(const std::string& owner, const CopyRequest& wanted);
  // Checks the limit before a checkpoint of `bytes` is written; a replaced one no longer counts. Error resource_exhausted.
  // `metadata`: its bytes, the model's included.
  void check_room(const std::string& owner, const std::string& path, std::int64_t bytes, std::int64_t metadata = 0);
  std::filesystem::path folder(const CheckpointRecord& record) const;
  // The folder of an external checkpoint. Error invalid_argument for another kind.
  std::filesystem::path external_folder(const std::string& owner, const std::string& path);
  // The session is removed; its checkpoints stay, and keep its job.
  void store_job(const SessionRecord& session);
  void each_metadata(const MetadataRoom::Count& count) const;
  std::size_t count() const;

 private:
  struct Begun {
    std::string path, owner;
    std::int64_t bytes = 0;
  };
  struct State {
    explicit State(const KeyLimit& numbers) : copies(numbers) {}
    std::map<std::string, CheckpointRecord> records;  // by path
    std::list<Begun> begun;
    RecentTexts copies;  // owner and idempotency key -> path
  };
  std::string job_of(const CheckpointRecord& record) const;
  std::optional<CheckpointRecord> named_adapter(const std::string& path) const;
  void remove_expired();
  void store(const CheckpointRecord& record);
  void forget(const CheckpointRecord& record);
  std::optional<CheckpointRecord> at(const std::string& path) const;
  // The channel of the checkpoint's name goes from the one that was replaced to the one that has a name made up.
  void take_name(const CheckpointRecord& record, const CheckpointRecord& replaced);
  void remove_files(const CheckpointRecord& record) const;
  void copy_files(const CheckpointRecord& from, const CheckpointRecord& to) const;

  TrainingCommons& commons_;
  Sessions& sessions_;
  const StoredRecords<PromotedModel>& promoted_;
  CheckpointSnapshots& snapshots_;
  RecordWriter writer_;  // of checkpoints in the store, and removed folders
  std::mutex copying_;   // copies are made one after another, so that a request that is sent again finds what the first one made
  Guarded<State> state_;
};

// The pseudo-model of the server's named adapters, so that they look like checkpoints.
inline constexpr const char* kNamedAdapterModel = "adapters";

}  // namespace lockstep
