// Stores the deployments and aliases that were changed over HTTP, so that a server restarted on the same folder has them again. Everything else is as
// the command line says. One JSON file, replaced atomically at each change.
//   StoredDeployments stored("deploy-state");   stored.made({"v8", "v8", ""});   stored.alias({"chat", {{"v8", 1}}, {}});   stored.record().made
// Any thread. One process per folder, which is locked.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/folder_lock.h"
#include "serving/traffic.h"

namespace lockstep {

struct DeploymentRecord {
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  static constexpr std::size_t kMostMade = 64, kMostDeleted = 1024, kMostSourceBytes = 4096;

  struct Made {
    std::string name, source;  // below the folder of models
    std::string snapshot;      // the id of the one that the source meant; empty: it is a folder
    bool operator==(const Made&) const = default;
  };
  std::vector<Made> made;                                     // in the order in which they came
  std::vector<std::string> deleted;                           // deployments of the command line that were deleted
  std::map<std::string, std::optional<TrafficRule>> aliases;  // nothing: it was deleted
};

std::string deployment_record_text(const DeploymentRecord& record);
// Error corrupt_file for any text that deployment_record_text would not write.
DeploymentRecord parse_deployment_record(std::string_view text);

class StoredDeployments {
 public:
  // Errors: already_exists (a user's folder), resource_exhausted (another process has it), corrupt_file with what to do about it, io.
  explicit StoredDeployments(const std::filesystem::path& folder);
  std::filesystem::path file() const { return folder_ / "deployments.json"; }
  DeploymentRecord record() const;

  // Each has reached the disk when it returns. Errors: io, resource_exhausted; the record is then as it was.
  void made(const DeploymentRecord::Made& one);
  void deleted(const std::string& name);
  void alias(const TrafficRule& rule);
  void alias_deleted(const std::string& alias);

 private:
  void change(const std::function<void(DeploymentRecord&)>& edit);
  const std::filesystem::path folder_;
  const FolderLock lock_;
  mutable std::mutex mutex_;  // of record_ and the file
  DeploymentRecord record_;
};

}  // namespace lockstep
