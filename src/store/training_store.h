// The data that a training server needs again after a restart: documents by (kind, id), and results that clients may still fetch.
// A document holds all of one session, model, sampler or checkpoint, and is rewritten as a whole when that changes.
// Knows nothing of what is in them. Any thread.
//   TrainingStore store("state"); store.put("session", id, json); store.each("session", [](id, json) { ... });
#pragma once
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "store/database.h"

namespace lockstep {

struct StoredResult {
  std::string id, owner, scope;     // scope: the model or sampler it belongs to
  std::string content_type, bytes;  // of a result; content_type empty: it failed
  std::string category, message;    // of a failure
};

class TrainingStore {
 public:
  // Makes the folder if needed, and locks it against other processes. Errors: io, corrupt_file, unsupported (a newer version's database).
  explicit TrainingStore(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  void put(std::string_view kind, std::string_view id, std::string_view document);
  void remove(std::string_view kind, std::string_view id);
  // In the order in which they were first put.
  void each(std::string_view kind, const std::function<void(const std::string& id, const std::string& document)>& visit);

  void put_result(const StoredResult& result);
  std::optional<StoredResult> result(std::string_view id);
  void remove_results(std::string_view scope);
  // Removes the oldest results beyond `most_bytes` of them. Returns how many.
  std::int64_t trim_results(std::int64_t most_bytes);

 private:
  std::filesystem::path folder_;
  std::mutex mutex_;
  Database database_;
};

}  // namespace lockstep
