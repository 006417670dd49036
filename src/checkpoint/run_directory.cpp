#include "checkpoint/run_directory.h"

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/output_path.h"
#include "checkpoint/json_file.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

std::vector<std::string> runs_in(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) names.push_back(entry->path().filename());
  std::sort(names.begin(), names.end());
  return names;
}
}  // namespace

void check_run_name(const std::string& name) {
  const bool allowed = !name.empty() && name.size() <= 100 && is_alphanumeric(name[0]) &&
                       std::all_of(name.begin(), name.end(), [](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
  if (!allowed)
    fail(ErrorCode::invalid_argument,
         "the run's name is '{}', allowed are letters, digits, '.', '_' and '-', at most 100, beginning with a letter "
         "or a digit",
         name.substr(0, 110));
}

RunDirectory RunDirectory::open(const fs::path& root, const std::string& name, const Json& config, const RunOptions& options) {
  check_run_name(name);
  const fs::path path = root / name;
  std::error_code error;
  if (options.resume && !fs::is_directory(path, error))
    fail(ErrorCode::not_found, "there is no run '{}' to resume{}", path.string(), did_you_mean(name, runs_in(root)));
  claim_folder(path, "run");
  RunDirectory run(path);
  // config.json marks a run that has begun; a folder without one is left over from a crash at the very start.
  if (fs::exists(run.config_file(), error)) {
    if (!options.resume)
      fail(ErrorCode::already_exists, "the run '{}' exists; to go on with it: {}", path.string(),
           options.resume_line.empty() ? "the same command with --resume" : options.resume_line);
    run.resumed_ = true;
  } else {
    write_file_atomic(run.config_file(), json_text(config));
  }
  fs::create_directories(run.checkpoints(), error);
  if (error) fail(ErrorCode::io, "cannot create '{}': {}", run.checkpoints().string(), error.message());
  return run;
}

Json RunDirectory::config() const { return read_json_file(config_file()); }

}  // namespace lockstep
