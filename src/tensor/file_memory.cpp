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

namespace lockstep {

namespace {
[[noreturn]] void refuse(const std::filesystem::path& folder, std::size_t bytes, int error) {
  fail(ErrorCode::io, "{} bytes could not be reserved in a file in '{}': {}; make room there, or keep the optimizer's state in memory", bytes,
       folder.string(), std::system_category().message(error));
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
}  // namespace

FileMemory::FileMemory(const std::filesystem::path& folder, std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  std::string path = (folder / ".optimizer-XXXXXX").string();
  const int descriptor = mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0) refuse(folder, bytes, errno);
  unlink(path.c_str());
  int error = reserve(descriptor, bytes);
  if (error == 0) {
    map_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (map_ == MAP_FAILED) error = errno;
  }
  close(descriptor);  // the mapping keeps the file
  if (error != 0) refuse(folder, bytes, error);
}

FileMemory::~FileMemory() {
  if (map_) munmap(map_, bytes_);
}

// Whole pages, those at both ends too: a neighbour's values stay as well.
void FileMemory::advise(std::size_t begin, std::size_t bytes, int advice) const {
  if (!map_ || bytes == 0) return;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t first = begin / page * page, end = std::min(bytes_, begin + bytes);
  if (first < end) madvise(static_cast<std::byte*>(map_) + first, end - first, advice);  // a hint: what it says does not matter
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
