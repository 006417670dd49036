#include "base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace lockstep {

// The kernel releases the lock when the process ends: there are no stale ones.
FolderLock::FolderLock(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "lock";
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
    descriptor_ = descriptor;
    return;
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

FolderLock::FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace lockstep
