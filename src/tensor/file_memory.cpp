#include "tensor/file_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <string>
#include <system_error>

#include "base/error.h"
#include "tensor/device_pointer.h"

namespace lockstep {

namespace {
[[noreturn]] void refuse(const std::filesystem::path& folder, std::size_t bytes, int error) {
  fail(ErrorCode::io, "{} bytes could not be reserved in a file in '{}': {}; make room there, or keep the optimizer's state in memory", bytes, folder.string(),
       std::system_category().message(error));
}

// Writing past the limit would be a signal, not an error.
int reserve(int descriptor, std::size_t bytes) {
  rlimit limit{};
  if (bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max())) return EFBIG;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur) return EFBIG;
  int error = 0;
  do error = posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  while (error == EINTR);
  return error;
}

// move(bytes of memory, how many, where in the file), until all are moved.
template <class Move>
void move_all(std::byte* memory, std::size_t bytes, off_t at, const char* verb, const Move& move) {
  while (bytes > 0) {
    const ssize_t moved = move(memory, bytes, at);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) fail(ErrorCode::io, "{} the optimizer's file: {}", verb, moved == 0 ? "it ended" : std::system_category().message(errno));
    memory += moved;
    at += moved;
    bytes -= static_cast<std::size_t>(moved);
  }
}
std::size_t bytes_of(const View& view) { return static_cast<std::size_t>(view.size() * view.element_bytes); }
}  // namespace

FileMemory::FileMemory(const std::filesystem::path& folder, std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  std::string path = (folder / ".optimizer-XXXXXX").string();
  descriptor_ = mkostemp(path.data(), O_CLOEXEC);
  if (descriptor_ < 0) refuse(folder, bytes, errno);
  unlink(path.c_str());
  int error = reserve(descriptor_, bytes);
  if (error == 0) {
    map_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (map_ == MAP_FAILED) error = errno;
  }
  if (error == 0) return;
  close(descriptor_);
  refuse(folder, bytes, error);
}

FileMemory::~FileMemory() {
  if (map_) munmap(map_, bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

bool FileMemory::holds(const View& view) const {
  const auto* const at = device_pointer<std::byte>(view);
  return map_ && view && at >= map_ && at < static_cast<std::byte*>(map_) + bytes_;
}

void FileMemory::load(const View& to, const View& from) const {
  move_all(device_pointer<std::byte>(to), bytes_of(from), device_pointer<std::byte>(from) - static_cast<std::byte*>(map_), "reading",
           [this](std::byte* memory, std::size_t bytes, off_t at) { return pread(descriptor_, memory, bytes, at); });
}

void FileMemory::store(const View& to, const View& from) const {
  move_all(device_pointer<std::byte>(from), bytes_of(to), device_pointer<std::byte>(to) - static_cast<std::byte*>(map_), "writing",
           [this](std::byte* memory, std::size_t bytes, off_t at) { return pwrite(descriptor_, memory, bytes, at); });
}

// Whole pages, including those at both ends: values do not change, so a neighbour's are safe.
void FileMemory::advise(std::size_t begin, std::size_t bytes, int advice) const {
  if (!map_ || bytes == 0) return;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t first = begin / page * page, end = std::min(bytes_, begin + bytes);
  if (first < end) madvise(static_cast<std::byte*>(map_) + first, end - first, advice);  // a hint: a failure does not matter
}

void FileMemory::release(std::size_t begin, std::size_t bytes) const { advise(begin, bytes, MADV_DONTNEED); }

void FileMemory::prepare(std::size_t begin, std::size_t bytes) const {
#ifdef MADV_POPULATE_WRITE
  advise(begin, bytes, MADV_POPULATE_WRITE);
#else
  advise(begin, bytes, MADV_WILLNEED);
#endif
}

void* FileMemory::take(std::size_t bytes) {
  const std::size_t size = block_bytes(bytes);
  if (size > bytes_ - taken_) fail(ErrorCode::internal, "a block of {} bytes is beyond the end of a file of {} bytes, {} of them taken", size, bytes_, taken_);
  void* const block = static_cast<std::byte*>(map_) + taken_;
  taken_ += size;
  return block;
}

}  // namespace lockstep
