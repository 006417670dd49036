#include "base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/output_path.h"

namespace lockstep {

// The kernel releases the lock when the process ends, so there are no stale locks.
FolderLock::FolderLock(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "lock";
  std::error_code missing;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, missing)) && !is_folder_lock(path))
    fail(ErrorCode::already_exists, "'{}' is not this program's, and its own lock would go there; name another folder", path.string());
  int descriptor;
  do descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) fail(ErrorCode::io, "cannot open '{}': {}", path.string(), std::generic_category().message(errno));
  int locked;
  do locked = flock(descriptor, LOCK_EX | LOCK_NB);
  while (locked != 0 && errno == EINTR);
  if (locked == 0) {
    const std::string text = fmt::format("{}\n", getpid());  // for the message below; nothing depends on it
    if (ftruncate(descriptor, 0) == 0 && pwrite(descriptor, text.data(), text.size(), 0) < 0) errno = 0;
    descriptor_ = descriptor;
    return;
  }
  const int error = errno;
  char holder[24] = {};
  const ssize_t length = pread(descriptor, holder, sizeof holder - 1, 0);
  close(descriptor);
  if (error != EWOULDBLOCK) fail(ErrorCode::io, "cannot lock '{}': {}", path.string(), std::generic_category().message(error));
  const std::string process(holder, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  fail(ErrorCode::resource_exhausted, "'{}' is in use by process {}", folder.string(), process.substr(0, process.find('\n')));
}

FolderLock::FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool is_folder_lock(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(file, error))) return false;
  if (std::filesystem::file_size(file, error) > 24 || error) return false;
  const std::string text = read_file(file, 24);  // empty: between its making and its filling
  return text.find_first_not_of("0123456789\n") == std::string::npos;
}

}  // namespace lockstep
