#include "checkpoint/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/json_file.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

std::vector<std::string> runs_in(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// The lock's descriptor. The kernel releases it when the process ends: there are no stale locks.
int lock_folder(const fs::path& folder) {
  const fs::path path = folder / "lock";
  int descriptor;
  do descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0)
    fail(ErrorCode::io, "cannot open '{}': {}", path.string(), std::generic_category().message(errno));
  int locked;
  do locked = flock(descriptor, LOCK_EX | LOCK_NB);
  while (locked != 0 && errno == EINTR);
  if (locked == 0) {
    const std::string text = fmt::format("{}\n", getpid());  // for the message below; nothing depends on it
    if (ftruncate(descriptor, 0) == 0 && pwrite(descriptor, text.data(), text.size(), 0) < 0) errno = 0;
    return descriptor;
  }
  const int error = errno;
  char holder[24] = {};
  const ssize_t length = pread(descriptor, holder, sizeof holder - 1, 0);
  close(descriptor);
  if (error != EWOULDBLOCK)
    fail(ErrorCode::io, "cannot lock '{}': {}", path.string(), std::generic_category().message(error));
  const std::string process(holder, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  fail(ErrorCode::resource_exhausted, "the run '{}' is in use by process {}", folder.string(),
       process.substr(0, process.find('\n')));
}
}  // namespace

void check_run_name(const std::string& name) {
  const bool allowed = !name.empty() && name.size() <= 100 && is_alphanumeric(name[0]) &&
                       std::all_of(name.begin(), name.end(),
                                   [](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
  if (!allowed)
    fail(ErrorCode::invalid_argument,
         "the run's name is '{}', allowed are letters, digits, '.', '_' and '-', at most 100, beginning with a letter "
         "or a digit",
         name.substr(0, 110));
}

RunDirectory RunDirectory::open(const fs::path& root, const std::string& name, const Json& config,
                                const RunOptions& options) {
  check_run_name(name);
  const fs::path path = root / name;
  std::error_code error;
  if (options.resume && !fs::is_directory(path, error))
    fail(ErrorCode::not_found, "there is no run '{}' to resume{}", path.string(), did_you_mean(name, runs_in(root)));
  fs::create_directories(path, error);
  if (error) fail(ErrorCode::io, "cannot create '{}': {}", path.string(), error.message());
  RunDirectory run(path, lock_folder(path));
  // config.json marks a run that was begun; a folder without one is what a crash left at the very start.
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

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)), resumed_(other.resumed_) {}

RunDirectory::~RunDirectory() {
  if (lock_ >= 0) close(lock_);
}

Json RunDirectory::config() const { return read_json_file(config_file()); }

}  // namespace lockstep
