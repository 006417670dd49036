#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/folder_entries.h"
#include "base/give_way.h"
#include "base/lfs_pointer.h"
#include "base/output_path.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
[[noreturn]] void fail_io(std::string_view doing, const fs::path& path, int error) {
  const ErrorCode code = error == ENOENT ? ErrorCode::not_found : error == EEXIST ? ErrorCode::already_exists : ErrorCode::io;
  fail(code, "cannot {} '{}': {}", doing, path.string(), std::generic_category().message(error));
}

int open_retrying(const fs::path& path, int flags, mode_t mode = 0) {
  int descriptor;
  do descriptor = open(path.c_str(), flags | O_CLOEXEC, mode);
  while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

void sync_descriptor(int descriptor, const fs::path& path) {
  give_way_during([&] {
    while (fsync(descriptor) != 0) {
      if (errno == EINTR) continue;
      fail_io("write to disk", path, errno);
    }
  });
}

// Lets the system begin to write a file's last megabytes to disk, so that the fsync at its end waits for the last ones alone. A hint: errors do not matter.
void begin_to_sync(int descriptor, std::size_t written) {
  constexpr off_t kAtOnce = off_t{16} << 20;
  const off_t end = lseek(descriptor, 0, SEEK_CUR), begin = (end - static_cast<off_t>(written)) / kAtOnce * kAtOnce;
  if (end / kAtOnce * kAtOnce > begin) sync_file_range(descriptor, begin, end / kAtOnce * kAtOnce - begin, SYNC_FILE_RANGE_WRITE);
}

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// "runs/a/" and "runs/a" are the same path; the rest of this file needs it without the slash.
fs::path without_trailing_slash(fs::path path) {
  if (!path.has_filename() && path.has_parent_path()) path = path.parent_path();
  if (!path.has_filename() || path.filename() == "." || path.filename() == "..")
    fail(ErrorCode::invalid_argument, "path is '{}', and names no file or folder that could be written", path.string());
  return path;
}
}  // namespace

std::string read_file(const fs::path& path, std::size_t most_bytes) {
  const int descriptor = open_retrying(path, O_RDONLY);
  if (descriptor < 0) fail_io("open", path, errno);
  struct Closer {
    int descriptor;
    ~Closer() { close(descriptor); }
  } closer{descriptor};
  struct stat status {};
  if (fstat(descriptor, &status) != 0) fail_io("read", path, errno);
  if (S_ISDIR(status.st_mode)) fail_io("read", path, EISDIR);
  const auto too_long = [&] { fail(ErrorCode::resource_exhausted, "'{}' is longer than the {} bytes allowed", path.string(), most_bytes); };
  if (S_ISREG(status.st_mode) && static_cast<std::uint64_t>(status.st_size) > most_bytes) too_long();
  std::string data;
  if (S_ISREG(status.st_mode)) data.reserve(static_cast<std::size_t>(status.st_size));
  // Sizes may lie (pipes, /proc) or change: read to the end, never past the limit.
  std::vector<char> block(1 << 16);
  for (;;) {
    const ssize_t got = read(descriptor, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read", path, errno);
    if (got == 0) {
      refuse_lfs_pointer(path.native(), data);
      return data;
    }
    if (static_cast<std::size_t>(got) > most_bytes - data.size()) too_long();
    data.append(block.data(), static_cast<std::size_t>(got));
  }
}

void sync_path(const fs::path& path) {
  const int descriptor = open_retrying(path, O_RDONLY);
  if (descriptor < 0) fail_io("open", path, errno);
  struct Closer {
    int descriptor;
    ~Closer() { close(descriptor); }
  } closer{descriptor};
  sync_descriptor(descriptor, path);
}

AtomicFile::AtomicFile(fs::path path) : path_(without_trailing_slash(std::move(path))), partial_(path_) {
  partial_ += kPartial;
  descriptor_ = open_retrying(partial_, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) fail_io("create", partial_, errno);
  try {
    kill_point("file.opened");
  } catch (...) {
    close_quietly();
    throw;
  }
}

AtomicFile::~AtomicFile() {
  if (!committed_) close_quietly();
}

void AtomicFile::close_quietly() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
  unlink(partial_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  each_block(data, bytes, [&](const char* next, std::size_t size) {
    std::size_t left = size;
    while (left > 0) {
      const ssize_t written = ::write(descriptor_, next, left);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_io("write", path_, errno);
      next += written;
      left -= static_cast<std::size_t>(written);
    }
    begin_to_sync(descriptor_, size);
    give_way();
  });
}

void AtomicFile::commit() {
  kill_point("file.written");
  sync_descriptor(descriptor_, partial_);
  kill_point("file.synced");
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (close(descriptor) != 0 && errno != EINTR) fail_io("write", path_, errno);
  if (rename(partial_.c_str(), path_.c_str()) != 0) fail_io("rename to", path_, errno);
  committed_ = true;
  kill_point("file.renamed");
  sync_path(parent_of(path_));
}

void write_file_atomic(const fs::path& path, std::string_view data) {
  AtomicFile file(path);
  file.write(data);
  file.commit();
}

namespace {
// Of a folder and those inside it, each before what it holds; links are left out.
void add_all_in(const fs::path& folder, std::vector<fs::path>& all) {
  for (const std::string& name : entries_in(folder)) {
    const fs::path entry = folder / name;
    const fs::file_status status = fs::symlink_status(entry);
    if (fs::is_symlink(status)) continue;
    all.push_back(entry);
    if (fs::is_directory(status)) add_all_in(entry, all);
  }
}

// remove_all, but the mark goes last: a kill in the midst leaves a folder that its owner still knows (output_path.h).
void remove_marked(const fs::path& path, std::error_code& error) {
  if (fs::is_directory(fs::symlink_status(path, error))) {
    for (const std::string& name : entries_in(path)) {
      if (name == kFolderMark) continue;
      fs::remove_all(path / name, error);
      kill_point("folder.removing");
      if (error) return;
    }
  }
  fs::remove_all(path, error);
}
}  // namespace

AtomicFolder::AtomicFolder(fs::path path, Existing existing) : path_(without_trailing_slash(std::move(path))), partial_(path_), existing_(existing) {
  partial_ += kPartial;
  std::error_code error;
  if (existing_ == Existing::refuse && fs::exists(fs::symlink_status(path_, error)))
    fail(ErrorCode::already_exists, "'{}' exists and would be overwritten", path_.string());
  remove_marked(partial_, error);
  if (error) fail_io("remove", partial_, error.value());
  fs::create_directories(partial_, error);
  if (error) fail_io("create", partial_, error.value());
}

AtomicFolder::~AtomicFolder() {
  if (committed_) return;
  std::error_code ignored;
  try {
    remove_marked(partial_, ignored);
  } catch (...) {  // a kill_point, no memory: the next AtomicFolder of this path removes what is left
  }
}

void AtomicFolder::commit() {
  kill_point("folder.written");
  // Files and inner folders first, each folder after what it holds.
  std::vector<fs::path> inside;
  add_all_in(partial_, inside);
  std::error_code error;
  for (auto path = inside.rbegin(); path != inside.rend(); ++path) sync_path(*path);
  sync_path(partial_);
  kill_point("folder.synced");

  // rename replaces an empty folder; a non-empty one (or a file) is exchanged atomically.
  const bool occupied = fs::exists(fs::symlink_status(path_, error));
  if (occupied && existing_ == Existing::refuse) fail(ErrorCode::already_exists, "'{}' exists and would be overwritten", path_.string());
  if (occupied) {
    if (renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
      // File systems without RENAME_EXCHANGE: for a moment the path does not exist, and both versions lie beside it.
      if (errno != EINVAL && errno != ENOSYS) fail_io("replace", path_, errno);
      fs::path old = path_;
      old += ".lockstep.old";
      remove_marked(old, error);
      if (rename(path_.c_str(), old.c_str()) != 0) fail_io("rename", path_, errno);
      if (rename(partial_.c_str(), path_.c_str()) != 0) {
        const int why = errno;
        rename(old.c_str(), path_.c_str());
        fail_io("rename to", path_, why);
      }
      remove_marked(old, error);
    }
  } else if (rename(partial_.c_str(), path_.c_str()) != 0) {
    fail_io("rename to", path_, errno);
  }
  committed_ = true;
  kill_point("folder.renamed");
  sync_path(parent_of(path_));
  if (occupied) {
    remove_marked(partial_, error);  // what stood there before
    kill_point("folder.old_removed");
  }
}

}  // namespace lockstep
