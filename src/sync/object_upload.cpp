#include "sync/object_upload.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kPartBytes = std::uint64_t{8} << 20;  // S3 allows 5 MB to 5 GB, and 10,000 parts
constexpr std::uint64_t kMostParts = 10'000;
constexpr int kUploads = 3;  // parts at a time

[[noreturn]] void fail_here(const char* doing) {
  fail(ErrorCode::io, "cannot {} an upload in '{}': {}", doing, std::filesystem::temp_directory_path().string(), std::generic_category().message(errno));
}
}  // namespace

ObjectUpload::ObjectUpload(UploadCalls calls) : calls_(std::move(calls)) {
  std::string path = (std::filesystem::temp_directory_path() / "lockstep-upload-XXXXXX").string();
  descriptor_ = mkostemp(path.data(), O_CLOEXEC);
  if (descriptor_ < 0) fail_here("begin");
  unlink(path.c_str());
}

ObjectUpload::~ObjectUpload() {
  if (descriptor_ >= 0) close(descriptor_);
}

void ObjectUpload::write(std::string_view bytes) {
  hash_.update(bytes);
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor_, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail_here("keep");
    bytes.remove_prefix(static_cast<std::size_t>(done));
    bytes_ += static_cast<std::uint64_t>(done);
  }
}

std::string ObjectUpload::read(std::uint64_t offset, std::uint64_t bytes) const {
  std::string text(static_cast<std::size_t>(bytes), '\0');
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t done = pread(descriptor_, text.data() + at, text.size() - at, static_cast<off_t>(offset + at));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail_here("read");
    at += static_cast<std::size_t>(done);
  }
  return text;
}

std::string ObjectUpload::commit() {
  const std::string digest = hash_.hex();
  kill_point("store.object");
  if (bytes_ <= kPartBytes) {
    calls_.put(digest, read(0, bytes_));
    return digest;
  }
  const std::uint64_t part_bytes = std::max(kPartBytes, (bytes_ + kMostParts - 1) / kMostParts);
  const std::string upload = calls_.begin(digest);
  try {
    std::vector<std::string> tags(static_cast<std::size_t>((bytes_ + part_bytes - 1) / part_bytes));
    ThreadPool(kUploads).run(static_cast<std::int64_t>(tags.size()), [&](std::int64_t i) {
      const std::uint64_t at = static_cast<std::uint64_t>(i) * part_bytes;
      tags[static_cast<std::size_t>(i)] = calls_.part(digest, upload, static_cast<int>(i) + 1, read(at, std::min(part_bytes, bytes_ - at)));
      kill_point("store.part");
    });
    calls_.end(digest, upload, tags);
  } catch (const Error&) {
    try {
      calls_.abandon(digest, upload);
    } catch (const Error&) {  // the first failure is what is told
    }
    throw;
  }
  return digest;
}

}  // namespace lockstep
