// A remote store with a local folder for downloads. When something of an object is read, the whole object is fetched, in pieces, several at a time,
// and checked by its SHA-256. A large object has pieces of 4 MB; one below 16 MB has four: where packets are lost, a connection alone is slow on any
// link. After an interruption or a kill a fetch goes on where it ended. Any thread; one process a folder (a lock).
//   const Downloads near(*store, "model.lockstep.downloads", {.parallel = 4});   near.fetch(digests);   near.read(StoredKind::object, digest, 0, 10);
#pragma once
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <semaphore>
#include <string>
#include <vector>

#include "base/folder_lock.h"
#include "sync/read_alone.h"

namespace lockstep {

inline constexpr std::uint64_t kMostPieceBytes = std::uint64_t{4} << 20, kLeastPieceBytes = std::uint64_t{64} << 10;
inline constexpr std::uint64_t kPieces = 4;  // of an object that is not large

struct DownloadOptions {
  int parallel = 4;                                       // transfers at a time
  std::function<void(std::uint64_t bytes)> arrived = {};  // called when `bytes` more bytes have arrived
};

class Downloads final : public ReadAlone<Store> {
 public:
  // The folder is made. Errors: resource_exhausted (another process downloads there), io.
  Downloads(const Store& far, const std::filesystem::path& folder, const DownloadOptions& options);
  // Fetches these objects, each once. Errors: not_found; io; corrupt_file when the server twice sends bytes with another SHA-256.
  void fetch(const std::vector<std::string>& digests) const;
  // Bytes of these objects that are not yet here. Error not_found.
  std::uint64_t missing(const std::vector<std::string>& digests) const;
  // Deletes an object that is no longer needed from the disk.
  void forget(const std::string& digest) const;
  // Removes the folder, unless it holds other files.
  void clear();
  std::uint64_t arrived() const { return arrived_; }

  std::string label() const override { return far_.label(); }
  std::string read(StoredKind kind, const std::string& digest, std::uint64_t offset, std::uint64_t bytes) const override;
  // All else is the far store's.
  std::optional<std::uint64_t> size(StoredKind kind, const std::string& digest) const override;
  std::vector<std::string> list(StoredKind kind) const override { return far_.list(kind); }
  std::vector<std::string> channels() const override { return far_.channels(); }
  std::optional<std::string> read_channel(const std::string& name) const override { return far_.read_channel(name); }
  std::vector<std::string> records(const std::string& kind) const override { return far_.records(kind); }
  std::optional<std::string> read_record(const std::string& kind, const std::string& name) const override { return far_.read_record(kind, name); }

 private:
  struct Part;
  [[noreturn]] void refuse() const override;
  [[noreturn]] void fail_missing(const std::string& digest) const;
  void fetch_one(const std::string& digest) const;
  void fetch_pieces(const std::string& digest, Part& part) const;
  std::mutex& mutex_of(const std::string& digest) const;
  std::filesystem::path whole(const std::string& digest) const { return folder_ / digest; }

  const Store& far_;
  std::filesystem::path folder_;
  DownloadOptions options_;
  std::unique_ptr<FolderLock> lock_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<std::mutex>> busy_;  // one an object
  mutable std::map<std::string, std::uint64_t> sizes_;               // of objects that were asked for
  mutable std::counting_semaphore<> turns_;                          // as many transfers at a time, whatever the number of objects
  mutable std::atomic<std::uint64_t> arrived_{0};
};

}  // namespace lockstep
