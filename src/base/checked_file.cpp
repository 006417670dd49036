#include "base/checked_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/give_way.h"
#include "base/hash.h"
#include "base/output_path.h"

namespace lockstep {
namespace {
struct BlockHead {
  std::uint64_t bytes = 0, hash = 0;
};
constexpr std::uint64_t kLastBlock = std::numeric_limits<std::uint64_t>::max();  // as a length: no block follows, and the hash is of their number
// What the system is asked to read ahead: a disk goes on while what it brought is hashed and copied.
constexpr std::uint64_t kAhead = std::uint64_t{16} << 20;

[[noreturn]] void fail_io(const char* doing, const std::filesystem::path& path) {
  fail(ErrorCode::io, "cannot {} '{}': {}", doing, path.string(), std::generic_category().message(errno));
}
}  // namespace

CheckedWriter::CheckedWriter(std::filesystem::path path) : path_(std::move(path)), partial_(path_) {
  partial_ += kPartial;
  do descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) fail_io("create", partial_);
}

CheckedWriter::~CheckedWriter() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(partial_.c_str());
}

void CheckedWriter::put(const void* data, std::size_t bytes) {
  each_block(data, bytes, [&](const char* next, std::size_t size) {
    while (size > 0) {
      const ssize_t put = ::write(descriptor_, next, size);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail_io("write", path_);
      next += put;
      size -= static_cast<std::size_t>(put);
    }
    give_way();
  });
}

void CheckedWriter::write(const void* data, std::size_t bytes) {
  const BlockHead head{bytes, xxh3(data, bytes, blocks_++)};
  put(&head, sizeof(head));
  put(data, bytes);
}

void CheckedWriter::commit() {
  const BlockHead last{kLastBlock, xxh3(&blocks_, sizeof(blocks_), blocks_)};
  put(&last, sizeof(last));
  kill_point("file.written");
  if (close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail_io("write", path_);
  if (rename(partial_.c_str(), path_.c_str()) != 0) fail_io("rename to", path_);
  kill_point("file.renamed");
}

CheckedReader::CheckedReader(const std::filesystem::path& path) : path_(path) {
  do descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0)
    fail(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io, "cannot open '{}': {}", path.string(), std::generic_category().message(errno));
  struct stat status {};
  if (fstat(descriptor_, &status) == 0) bytes_ = static_cast<std::uint64_t>(status.st_size);
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

CheckedReader::~CheckedReader() { close(descriptor_); }

void CheckedReader::refuse(const std::string& what) const { fail(ErrorCode::corrupt_file, "'{}' {}", path_.string(), what); }

void CheckedReader::take(void* data, std::size_t bytes) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    for (; asked_ < std::min(at_ + kAhead, bytes_); asked_ += kBlockToGiveWay)  // it takes little at a time
      posix_fadvise(descriptor_, static_cast<off_t>(asked_), kBlockToGiveWay, POSIX_FADV_WILLNEED);
    const ssize_t got = ::read(descriptor_, next, std::min(bytes, kBlockToGiveWay));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorCode::io, "cannot read '{}': {}", path_.string(), std::generic_category().message(errno));
    if (got == 0) refuse(fmt::format("ends in block {}", blocks_));
    next += got;
    bytes -= static_cast<std::size_t>(got);
    at_ += static_cast<std::uint64_t>(got);
    give_way();
  }
}

void CheckedReader::check_count(std::uint64_t count, std::size_t element) const {
  if (count > bytes_ / element) refuse(fmt::format("says that block {} has {} values, and has {} bytes", blocks_, count, bytes_));
}

void CheckedReader::read(void* data, std::size_t bytes) {
  BlockHead head;
  take(&head, sizeof(head));
  if (head.bytes != bytes) refuse(fmt::format("has {} bytes in block {}, expected are {}", head.bytes, blocks_, bytes));
  take(data, bytes);
  if (xxh3(data, bytes, blocks_) != head.hash) refuse(fmt::format("has other bytes in block {} than were written", blocks_));
  ++blocks_;
}

void CheckedReader::finish() {
  BlockHead last;
  take(&last, sizeof(last));
  if (last.bytes != kLastBlock || last.hash != xxh3(&blocks_, sizeof(blocks_), blocks_)) refuse(fmt::format("goes on behind block {}", blocks_));
}

}  // namespace lockstep
