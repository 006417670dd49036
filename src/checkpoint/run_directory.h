// The folder of a run, runs/NAME: config.json as resolved, metrics.jsonl, checkpoints/, export/, and a lock that keeps
// other processes out for as long as this object lives.
//   RunDirectory run = RunDirectory::open("runs", "countdown-rl", config, {.resume = false, .resume_line = "lockstep train rl"});
// Knows nothing of the contents. One owner.
#pragma once
#include <filesystem>
#include <string>

#include "base/folder_lock.h"
#include "model/config_reader.h"

namespace lockstep {

struct RunOptions {
  bool resume = false;
  std::string resume_line;  // the command that resumes the run, for the error message
};

class RunDirectory {
 public:
  // A new run: the folder and its config.json. With resume: one that exists; its config.json stays as it is.
  // Errors: already_exists (without resume; the message has resume_line), not_found (with resume, and the nearest
  // name), invalid_argument (name), resource_exhausted (another process uses it), io; already_exists for a user's own folder.
  static RunDirectory open(const std::filesystem::path& root, const std::string& name, const Json& config, const RunOptions& options);
  RunDirectory(RunDirectory&& other) noexcept = default;
  RunDirectory& operator=(RunDirectory&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config_file() const { return path_ / "config.json"; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path transcripts_file() const { return path_ / "transcripts.jsonl"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path export_folder() const { return path_ / "export"; }
  bool resumed() const { return resumed_; }  // it had been begun before
  Json config() const;                       // as it stands in config_file()

 private:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)), lock_(path_) {}
  std::filesystem::path path_;
  FolderLock lock_;
  bool resumed_ = false;
};

// Letters, digits, '.', '_', '-'; at most 100; the first is a letter or a digit. Error invalid_argument.
void check_run_name(const std::string& name);

}  // namespace lockstep
