#include "base/byte_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/give_way.h"

namespace lockstep {

ByteFile::ByteFile(ByteFile&& other) noexcept { *this = std::move(other); }

ByteFile& ByteFile::operator=(ByteFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(memory_, other.memory_);
  std::swap(label_, other.label_);
  std::swap(size_, other.size_);
  return *this;
}

ByteFile::~ByteFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

ByteFile ByteFile::open(const std::filesystem::path& path) {
  ByteFile file;
  file.label_ = path.string();
  do file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  while (file.descriptor_ < 0 && errno == EINTR);
  const auto fail_system = [&](int error) {
    fail(error == ENOENT || error == ENOTDIR ? ErrorCode::not_found : ErrorCode::io, "cannot open '{}': {}", path.string(),
         std::generic_category().message(error));
  };
  if (file.descriptor_ < 0) fail_system(errno);
  struct stat status {};
  if (fstat(file.descriptor_, &status) != 0) fail_system(errno);
  if (!S_ISREG(status.st_mode)) fail(ErrorCode::io, "cannot read '{}': it is not a regular file", path.string());
  file.size_ = static_cast<std::uint64_t>(status.st_size);
  return file;
}

ByteFile ByteFile::from_bytes(std::string bytes, std::string label) {
  ByteFile file;
  file.memory_ = std::move(bytes);
  file.label_ = std::move(label);
  file.size_ = file.memory_.size();
  return file;
}

void ByteFile::read(std::uint64_t at, void* to, std::size_t bytes) const {
  if (at > size_ || bytes > size_ - at) fail(ErrorCode::internal, "'{}': a read of {} bytes at {} is beyond its end", label_, bytes, at);
  if (descriptor_ < 0) {
    if (bytes > 0) std::memcpy(to, memory_.data() + at, bytes);
    return;
  }
  char* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, next, std::min(bytes, kBlockToGiveWay), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorCode::io, "cannot read '{}': {}", label_, std::generic_category().message(errno));
    if (got == 0) fail(ErrorCode::corrupt_file, "'{}' became shorter while it was read: no byte at {}", label_, at);
    next += got;
    at += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
    give_way();
  }
}

}  // namespace lockstep
