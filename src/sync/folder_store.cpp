#include "sync/folder_store.h"

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/byte_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder_lock.h"
#include "base/hash.h"
#include "base/output_path.h"
#include "sync/channel.h"
#include "sync/manifest.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorCode::io, "cannot create '{}': {}", folder.string(), error.message());
}

class FolderWriter final : public Store::Writer {
 public:
  explicit FolderWriter(fs::path objects) : objects_(std::move(objects)) {
    // One writer of a store at a time has the lock, but it may have several objects open.
    static std::atomic<unsigned> number{0};
    path_ = objects_ / fmt::format("writing-{}-{}", getpid(), number++);
    file_.emplace(path_);
  }
  void write(std::string_view bytes) override {
    hash_.update(bytes);
    file_->write(bytes);
    bytes_ += bytes.size();
  }
  std::uint64_t bytes() const override { return bytes_; }
  std::string commit() override {
    const std::string digest = hash_.hex();
    const fs::path folder = objects_ / digest.substr(0, 2), to = folder / digest;
    file_->commit();
    kill_point("store.object");
    make_folders(folder);
    std::error_code error;
    fs::rename(path_, to, error);
    if (error) fail(ErrorCode::io, "cannot rename '{}' to '{}': {}", path_.string(), to.string(), error.message());
    sync_path(folder);
    sync_path(objects_);
    return digest;
  }

 private:
  fs::path objects_, path_;
  std::optional<AtomicFile> file_;
  Sha256 hash_;
  std::uint64_t bytes_ = 0;
};

class FolderStore final : public Store {
 public:
  explicit FolderStore(fs::path folder) : folder_(std::move(folder)) {}
  std::string label() const override { return folder_.string(); }

  std::unique_ptr<WriteLock> writing() override {
    struct Held final : WriteLock {
      explicit Held(const fs::path& folder) : lock(folder) {}
      FolderLock lock;
    };
    auto held = std::make_unique<Held>(folder_);
    // What a killed writer left: nobody else writes now.
    std::error_code error;
    for (fs::directory_iterator entry(folder_ / "objects", error), end; !error && entry != end; entry.increment(error))
      if (entry->path().filename().string().starts_with("writing-")) fs::remove(entry->path(), error);
    return held;
  }

  std::optional<std::uint64_t> size(StoredKind kind, const std::string& digest) const override {
    std::error_code error;
    const auto bytes = fs::file_size(path(kind, digest), error);
    if (error) return std::nullopt;
    return bytes;
  }

  std::string read(StoredKind kind, const std::string& digest, std::uint64_t offset, std::uint64_t bytes) const override {
    const fs::path from = path(kind, digest);
    const ByteFile file = ByteFile::open(from);
    if (offset > file.size() || bytes > file.size() - offset)
      fail(ErrorCode::corrupt_file, "'{}' has {} bytes, and bytes {} to {} are needed", from.string(), file.size(), offset, offset + bytes);
    std::string text(static_cast<std::size_t>(bytes), '\0');
    if (bytes > 0) file.read(offset, text.data(), text.size());
    return text;
  }

  std::unique_ptr<Writer> write_object() override { return std::make_unique<FolderWriter>(folder_ / "objects"); }

  std::string put_manifest(const std::string& text) override {
    const std::string digest = sha256_hex(text);
    kill_point("store.manifest");
    write_file_atomic(path(StoredKind::manifest, digest), text);
    return digest;
  }

  std::vector<std::string> list(StoredKind kind) const override {
    std::vector<std::string> names;
    const auto add = [&](const fs::path& folder, std::string_view ending) {
      std::error_code error;
      for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        std::string name = entry->path().filename().string();
        if (!name.ends_with(ending)) continue;
        name.resize(name.size() - ending.size());
        if (is_digest(name, 64)) names.push_back(std::move(name));
      }
      if (error) fail(ErrorCode::io, "cannot list '{}': {}", folder.string(), error.message());
    };
    if (kind == StoredKind::manifest) {
      add(folder_ / "manifests", ".json");
    } else {
      std::error_code error;
      for (fs::directory_iterator entry(folder_ / "objects", error), end; !error && entry != end; entry.increment(error))
        if (is_digest(entry->path().filename().string(), 2)) add(entry->path(), "");
      if (error) fail(ErrorCode::io, "cannot list '{}': {}", (folder_ / "objects").string(), error.message());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  void remove(StoredKind kind, const std::string& digest) override {
    std::error_code error;
    fs::remove(path(kind, digest), error);
    if (error) fail(ErrorCode::io, "cannot remove '{}': {}", path(kind, digest).string(), error.message());
  }

  std::vector<std::string> channels() const override {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(folder_ / "channels", error), end; !error && entry != end; entry.increment(error))
      if (entry->path().extension() == ".json" && is_channel_name(entry->path().stem().string())) names.push_back(entry->path().stem().string());
    if (error) fail(ErrorCode::io, "cannot list '{}': {}", (folder_ / "channels").string(), error.message());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::optional<std::string> read_channel(const std::string& name) const override {
    const fs::path from = channel_path(name);
    std::error_code error;
    if (!fs::exists(from, error)) return std::nullopt;
    return read_file(from, kMostChannelBytes);
  }

  // The lock of the folder of channels makes reading and writing one: held for a moment only, so waiting for it is short.
  bool swap_channel(const std::string& name, const std::optional<std::string>& before, const std::string& after) override {
    const std::lock_guard guard(channels_mutex());
    const FolderLock lock = wait_for_channels();
    if (read_channel(name) != before) return false;
    kill_point("store.channel");
    write_file_atomic(channel_path(name), after);
    return true;
  }
  bool remove_channel(const std::string& name, const std::string& before) override {
    const std::lock_guard guard(channels_mutex());
    const FolderLock lock = wait_for_channels();
    if (read_channel(name) != before) return false;
    std::error_code error;
    fs::remove(channel_path(name), error);
    if (error) fail(ErrorCode::io, "cannot remove '{}': {}", channel_path(name).string(), error.message());
    sync_path(folder_ / "channels");
    return true;
  }

  std::vector<std::string> records(const std::string& kind) const override {
    std::vector<std::string> names;
    std::error_code error;
    if (!fs::exists(record_path(kind, "any").parent_path(), error)) return names;
    for (fs::directory_iterator entry(folder_ / kind, error), end; !error && entry != end; entry.increment(error))
      if (entry->path().extension() == ".json" && is_record_name(entry->path().stem().string())) names.push_back(entry->path().stem().string());
    if (error) fail(ErrorCode::io, "cannot list '{}': {}", (folder_ / kind).string(), error.message());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::optional<std::string> read_record(const std::string& kind, const std::string& name) const override {
    const fs::path from = record_path(kind, name);
    std::error_code error;
    if (!fs::exists(from, error)) return std::nullopt;
    return read_file(from, kMostRecordBytes);
  }
  void put_record(const std::string& kind, const std::string& name, const std::string& text) override {
    const fs::path to = record_path(kind, name);
    make_folders(to.parent_path());
    kill_point("store.record");
    write_file_atomic(to, text);
  }
  void remove_record(const std::string& kind, const std::string& name) override {
    std::error_code error;
    fs::remove(record_path(kind, name), error);
    if (error) fail(ErrorCode::io, "cannot remove '{}': {}", record_path(kind, name).string(), error.message());
  }

 private:
  static std::mutex& channels_mutex() {  // the lock of the folder is between processes
    static std::mutex mutex;
    return mutex;
  }
  FolderLock wait_for_channels() const {
    constexpr int kTries = 500, kMicroseconds = 10'000;
    for (int tried = 1;; ++tried) {
      try {
        return FolderLock(folder_ / "channels");
      } catch (const Error& e) {
        if (e.code() != ErrorCode::resource_exhausted || tried == kTries) throw;
        usleep(kMicroseconds);
      }
    }
  }
  fs::path path(StoredKind kind, const std::string& digest) const {
    if (!is_digest(digest, 64)) fail(ErrorCode::internal, "'{}' is no digest", digest);
    return kind == StoredKind::object ? folder_ / "objects" / digest.substr(0, 2) / digest : folder_ / "manifests" / (digest + ".json");
  }
  fs::path channel_path(const std::string& name) const {
    if (!is_channel_name(name))
      fail(ErrorCode::invalid_argument, "the channel's name is '{}', allowed are 1 to 64 letters, digits, '-', '_' and '.', a letter or digit first", name);
    return folder_ / "channels" / (name + ".json");
  }
  fs::path record_path(const std::string& kind, const std::string& name) const {
    if (!is_record_kind(kind) || !is_record_name(name)) fail(ErrorCode::internal, "'{}' of '{}' is no name of a record", name, kind);
    return folder_ / kind / (name + ".json");
  }
  fs::path folder_;
};
}  // namespace

std::unique_ptr<Store> open_folder_store(const fs::path& folder, bool create) {
  std::error_code error;
  if (create) {
    claim_folder(folder, "store");
    for (const char* inner : {"objects", "manifests", "channels"}) make_folders(folder / inner);
  } else if (!fs::is_directory(folder / "manifests", error)) {
    fail(ErrorCode::not_found, "'{}' is no store of snapshots; `lockstep snapshot push FOLDER {}` makes one", folder.string(), folder.string());
  }
  return std::make_unique<FolderStore>(folder);
}

}  // namespace lockstep
