#include "sync/downloads.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <system_error>

#include "base/byte_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "sync/manifest.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
constexpr const char *kData = ".part", *kCounts = ".have";

class OpenFile {
 public:
  OpenFile(const fs::path& path, std::uint64_t bytes) : path_(path), descriptor_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0 || ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) fail_here("write");
  }
  ~OpenFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  void write(std::uint64_t offset, const void* data, std::size_t bytes) const {
    for (std::size_t at = 0; at < bytes;) {
      const ssize_t done = pwrite(descriptor_, static_cast<const char*>(data) + at, bytes - at, static_cast<off_t>(offset + at));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail_here("write");
      at += static_cast<std::size_t>(done);
    }
  }
  void read(std::uint64_t offset, void* data, std::size_t bytes) const {
    for (std::size_t at = 0; at < bytes;) {
      const ssize_t done = pread(descriptor_, static_cast<char*>(data) + at, bytes - at, static_cast<off_t>(offset + at));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail_here("read");
      at += static_cast<std::size_t>(done);
    }
  }
  void sync() const {
    if (fsync(descriptor_) != 0) fail_here("sync");
  }

 private:
  [[noreturn]] void fail_here(const char* doing) const {
    fail(ErrorCode::io, "cannot {} '{}': {}", doing, path_.string(), std::generic_category().message(errno));
  }
  fs::path path_;
  int descriptor_;
};

class Turn {
 public:
  explicit Turn(std::counting_semaphore<>& turns) : turns_(turns) { turns_.acquire(); }
  ~Turn() { turns_.release(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::counting_semaphore<>& turns_;
};
}  // namespace

// An unfinished object: its bytes, and a count of bytes for each piece. Bytes are written before their count, so a kill may lose some but never
// invents any.
struct Downloads::Part {
  Part(const fs::path& whole, std::uint64_t size)
      : bytes(size),
        piece(std::clamp((size + kPieces - 1) / kPieces, kLeastPieceBytes, kMostPieceBytes)),
        data(whole.string() + kData, size),
        counts(whole.string() + kCounts, pieces() * sizeof(std::uint32_t)),
        have(pieces()) {
    if (!have.empty()) counts.read(0, have.data(), have.size() * sizeof(std::uint32_t));
    for (std::size_t i = 0; i < have.size(); ++i)
      if (have[i] > piece_bytes(i)) have[i] = 0;
  }
  std::uint64_t begin(std::size_t i) const { return i * piece; }
  std::size_t pieces() const { return static_cast<std::size_t>((bytes + piece - 1) / piece); }
  std::uint64_t piece_bytes(std::size_t i) const { return std::min(piece, bytes - begin(i)); }
  // Bytes that follow each other; they may reach into the next pieces.
  void add(std::uint64_t at, std::string_view text) {
    while (!text.empty()) {
      const auto i = static_cast<std::size_t>(at / piece);
      const std::size_t here = static_cast<std::size_t>(std::min<std::uint64_t>(text.size(), begin(i) + piece_bytes(i) - at));
      data.write(at, text.data(), here);
      have[i] = static_cast<std::uint32_t>(at + here - begin(i));
      counts.write(i * sizeof(std::uint32_t), &have[i], sizeof(std::uint32_t));
      at += here;
      text.remove_prefix(here);
    }
  }
  std::uint64_t bytes, piece;  // of the object, and of all its pieces but the last
  OpenFile data, counts;
  std::vector<std::uint32_t> have;
};

Downloads::Downloads(const Store& far, const fs::path& folder, const DownloadOptions& options)
    : far_(far), folder_(folder), options_(options), turns_(std::max(1, options.parallel)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) fail(ErrorCode::io, "cannot create '{}': {}", folder_.string(), error.message());
  lock_ = std::make_unique<FolderLock>(folder_);
}

void Downloads::refuse() const { fail(ErrorCode::internal, "downloads are read alone"); }

std::mutex& Downloads::mutex_of(const std::string& digest) const {
  const std::lock_guard lock(mutex_);
  auto& one = busy_[digest];
  if (!one) one = std::make_unique<std::mutex>();
  return *one;
}

std::optional<std::uint64_t> Downloads::size(StoredKind kind, const std::string& digest) const {
  if (kind == StoredKind::object) {
    const std::lock_guard lock(mutex_);
    if (const auto known = sizes_.find(digest); known != sizes_.end()) return known->second;
  }
  const auto bytes = far_.size(kind, digest);
  if (bytes && kind == StoredKind::object) {
    const std::lock_guard lock(mutex_);
    sizes_[digest] = *bytes;
  }
  return bytes;
}

std::string Downloads::read(StoredKind kind, const std::string& digest, std::uint64_t offset, std::uint64_t bytes) const {
  if (kind != StoredKind::object) return far_.read(kind, digest, offset, bytes);
  fetch_one(digest);
  const ByteFile file = ByteFile::open(whole(digest));
  if (offset > file.size() || bytes > file.size() - offset)
    fail(ErrorCode::corrupt_file, "object {} of '{}' has {} bytes, and bytes {} to {} are needed", digest, far_.label(), file.size(), offset, offset + bytes);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  if (bytes > 0) file.read(offset, text.data(), text.size());
  return text;
}

void Downloads::fetch(const std::vector<std::string>& digests) const {
  const std::set<std::string> once(digests.begin(), digests.end());
  const std::vector<std::string> list(once.begin(), once.end());
  ThreadPool(std::max(1, options_.parallel)).run(static_cast<std::int64_t>(list.size()), [&](std::int64_t i) { fetch_one(list[static_cast<std::size_t>(i)]); });
}

std::uint64_t Downloads::missing(const std::vector<std::string>& digests) const {
  std::atomic<std::uint64_t> bytes{0};
  ThreadPool(std::max(1, options_.parallel)).run(static_cast<std::int64_t>(digests.size()), [&](std::int64_t i) {
    const std::string& digest = digests[static_cast<std::size_t>(i)];
    std::error_code error;
    if (fs::exists(whole(digest), error)) return;
    const auto all = size(StoredKind::object, digest);
    if (!all) fail_missing(digest);
    std::uint64_t have = 0;
    if (fs::exists(whole(digest).string() + kCounts, error) && fs::file_size(whole(digest).string() + kData, error) == *all && !error)
      for (const std::uint32_t one : Part(whole(digest), *all).have) have += one;
    bytes += *all - std::min(have, *all);
  });
  return bytes;
}

void Downloads::fail_missing(const std::string& digest) const {
  fail(ErrorCode::not_found, "object {} is not in '{}'; push the snapshot again, or pull from another store", digest, far_.label());
}

void Downloads::fetch_one(const std::string& digest) const {
  if (!is_digest(digest, 64)) fail(ErrorCode::internal, "'{}' is no digest", digest);
  const std::lock_guard lock(mutex_of(digest));
  std::error_code error;
  if (fs::exists(whole(digest), error)) return;
  const auto bytes = size(StoredKind::object, digest);
  if (!bytes) fail_missing(digest);
  const fs::path data = whole(digest).string() + kData, counts = whole(digest).string() + kCounts;
  for (int tried = 0;; ++tried) {
    std::string found;
    {
      Part part(whole(digest), *bytes);
      fetch_pieces(digest, part);
      Sha256 hash;
      std::string text;
      for (std::size_t i = 0; i < part.pieces(); ++i) {
        text.resize(static_cast<std::size_t>(part.piece_bytes(i)));
        part.data.read(part.begin(i), text.data(), text.size());
        hash.update(text);
      }
      found = hash.hex();
      if (found == digest) part.data.sync();
    }
    if (found == digest) break;
    fs::remove(data, error);
    fs::remove(counts, error);
    if (tried > 0)
      fail(ErrorCode::corrupt_file,
           "object {} of '{}' came with the SHA-256 {}, twice; the server gives other bytes: pull from another store, or push the "
           "snapshot again",
           digest, far_.label(), found);
  }
  kill_point("download.whole");
  fs::rename(data, whole(digest), error);
  if (error) fail(ErrorCode::io, "cannot rename '{}': {}", data.string(), error.message());
  fs::remove(counts, error);
}

void Downloads::fetch_pieces(const std::string& digest, Part& part) const {
  const auto take = [&](std::uint64_t begin, std::uint64_t end) {
    const Turn turn(turns_);
    std::uint64_t at = begin;
    far_.stream(StoredKind::object, digest, begin, end - begin, [&](std::string_view text) {
      part.add(at, text);
      at += text.size();
      arrived_ += text.size();
      kill_point("download.bytes");
      if (options_.arrived) options_.arrived(text.size());
    });
  };
  const auto piece = [&](std::size_t i) {
    if (part.have[i] < part.piece_bytes(i)) take(part.begin(i) + part.have[i], part.begin(i) + part.piece_bytes(i));
  };
  if (part.pieces() == 0) return;
  if (!far_.gives_ranges()) piece(0);  // shows whether the server does
  ThreadPool(std::max(1, options_.parallel)).run(static_cast<std::int64_t>(part.pieces()), [&](std::int64_t i) {
    if (far_.gives_ranges().value_or(true)) piece(static_cast<std::size_t>(i));
  });
  // What a server without ranges has still to send comes front to back.
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < part.pieces() && begin == part.begin(i); ++i) begin += part.have[i];
  if (begin < part.bytes) take(begin, part.bytes);
}

void Downloads::forget(const std::string& digest) const {
  const std::lock_guard lock(mutex_of(digest));
  std::error_code error;
  fs::remove(whole(digest), error);
}

void Downloads::clear() {
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error))
    if (const std::string name = entry->path().filename().string(); name == "lock" || is_digest(name.substr(0, name.find('.')), 64))
      fs::remove(entry->path(), error);
  lock_.reset();
  fs::remove(folder_, error);  // not when somebody else's file is there
}

}  // namespace lockstep
