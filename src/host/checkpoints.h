// The registry of checkpoints: owner, client's path, size on disk, expiry. CheckpointFiles reads and writes their folders. It has its own lock, under
// which nothing waits for a disk. Owners see only their own and public ones. Any thread.
//   const CheckpointRecord record = checkpoints.find(owner, "tinker://s1:train:0/weights/step-3"); read(checkpoints.folder(record));
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/guarded.h"
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
  // Those of the store are there again. `promoted`: models whose files count with checkpoints'.
  Checkpoints(TrainingCommons& commons, Sessions& sessions, const StoredRecords<PromotedModel>& promoted);

  std::vector<CheckpointRecord> all(const std::string& owner, const std::string& model = {});  // oldest first
  // Of the models of a job's sessions, oldest first; "local": of sessions that were made through none.
  std::vector<CheckpointRecord> of_job(const std::string& owner, const std::string& job);
  // `path`: tinker://MODEL/KIND/NAME; ACCOUNT/RUN/NAME; cross_job://JOB/NAME; the bare name of one of `kind`: the newest, of `model` before others';
  // an adapter of the server by name (tinker://adapters/external_weights/NAME). Error not_found.
  CheckpointRecord find(const std::string& owner, const std::string& path, const std::string& kind = "weights", const std::string& model = {});
  bool contains(const std::string& path) const;
  // Its files are there: from here on it is this one, whatever ends the server.
  void put(const CheckpointRecord& record);
  // Errors not_found.
  void change(const std::string& owner, const std::string& path, const std::function<void(CheckpointRecord&)>& change);
  void remove(const std::string& owner, const std::string& path);
  // Returns the copy's path.
  std::string copy(const std::string& owner, const CopyRequest& wanted);
  // Before a checkpoint of `bytes` is written; of one that it replaces, its files count no more. Error resource_exhausted.
  // `metadata`: bytes of it, of the model too.
  void check_room(const std::string& owner, const std::string& path, std::int64_t bytes, std::int64_t metadata = 0);
  std::filesystem::path folder(const CheckpointRecord& record) const;
  // Where the files of an external checkpoint are. Error invalid_argument for one of another kind.
  std::filesystem::path external_folder(const std::string& owner, const std::string& path);
  // The session goes; its checkpoints stay, and remain the job's that it was made through.
  void keep_job(const SessionRecord& session);
  void each_metadata(const MetadataRoom::Count& count) const;
  std::size_t count() const;

 private:
  struct State {
    explicit State(const KeyLimit& numbers) : copies(numbers) {}
    std::map<std::string, CheckpointRecord> records;  // by path
    RecentTexts copies;                               // owner and idempotency key -> path
  };
  std::string job_of(const CheckpointRecord& record) const;
  std::optional<CheckpointRecord> named_adapter(const std::string& path) const;
  void remove_expired();
  void keep(const CheckpointRecord& record);
  void forget(const CheckpointRecord& record);

  TrainingCommons& commons_;
  Sessions& sessions_;
  const StoredRecords<PromotedModel>& promoted_;
  RecordWriter writer_;  // of checkpoints in the store, and removed folders
  Guarded<State> state_;
};

// Of the model of an adapter that the server has by name, as if it were a checkpoint's.
inline constexpr const char* kNamedAdapterModel = "adapters";

}  // namespace lockstep
