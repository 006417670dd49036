// The interface of a store of snapshots: objects and manifests, immutable and named by the SHA-256 of their bytes, and channels, small records that
// change. Behind it is a folder or a server. Any thread may read. A writer holds writing(): of two at once, one's prune could delete the other's
// unfinished work.
//   const auto store = open_store("/mnt/weights");  store->put_manifest(text);  store->swap_channel("chat", before, after);
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/stop_token.h"

namespace lockstep {

enum class StoredKind { object, manifest };

// Of stores behind a network.
struct StoreOptions {
  double stall_seconds = 30;  // a transfer that makes no progress for this long is tried again
  int tries = 6;              // tries in a row without progress before it fails
  double first_wait_seconds = 0.2;
  StopToken stop = {};
};

class Store {
 public:
  // Writes an object piece by piece; it is visible only after commit(), which returns its name. Without commit() it is discarded.
  class Writer {
   public:
    virtual ~Writer() = default;
    virtual void write(std::string_view bytes) = 0;
    virtual std::uint64_t bytes() const = 0;
    virtual std::string commit() = 0;
  };
  class WriteLock {
   public:
    virtual ~WriteLock() = default;
  };

  virtual ~Store() = default;
  virtual std::string label() const = 0;  // for messages: "/mnt/weights"
  // Held by whoever writes or removes. Error resource_exhausted: another process has it.
  virtual std::unique_ptr<WriteLock> writing() = 0;

  // Its bytes; nothing when it is not there.
  virtual std::optional<std::uint64_t> size(StoredKind kind, const std::string& digest) const = 0;
  // Bytes [offset, offset + bytes). Errors: not_found; corrupt_file when it is shorter; io.
  virtual std::string read(StoredKind kind, const std::string& digest, std::uint64_t offset, std::uint64_t bytes) const = 0;
  // Passes the same bytes to `sink` as they arrive, in order; an exception of `sink` ends it.
  using Sink = std::function<void(std::string_view bytes)>;
  virtual void stream(StoredKind kind, const std::string& digest, std::uint64_t offset, std::uint64_t bytes, const Sink& sink) const {
    sink(read(kind, digest, offset, bytes));
  }
  // is_far: whether reading goes over a network, so that readers keep copies of objects (sync/downloads.h). gives_ranges: whether parts of an object
  // can be read; nothing until an object was read.
  virtual bool is_far() const { return false; }
  virtual std::optional<bool> gives_ranges() const { return true; }
  virtual std::unique_ptr<Writer> write_object() = 0;
  // Its name, which is its SHA-256.
  virtual std::string put_manifest(const std::string& text) = 0;
  virtual std::vector<std::string> list(StoredKind kind) const = 0;  // sorted
  virtual void remove(StoredKind kind, const std::string& digest) = 0;

  virtual std::vector<std::string> channels() const = 0;                               // sorted
  virtual std::optional<std::string> read_channel(const std::string& name) const = 0;  // the record's text
  // Compare and swap: false, and nothing is written, when the record is not `before` (nothing: no such channel yet).
  virtual bool swap_channel(const std::string& name, const std::optional<std::string>& before, const std::string& after) = 0;
  // Removes it if its record is `before`; false, and nothing is removed, when it is another, or there is none.
  virtual bool remove_channel(const std::string& name, const std::string& before) = 0;

  // Small texts that change, each replaced whole by whoever has it, without a lock; the last one stands. A kind is a word of small letters ("ways":
  // sync/snapshot_ways.h, "replicas": sync/replica_record.h), a name is as is_record_name says.
  virtual std::vector<std::string> records(const std::string& kind) const = 0;  // names, sorted; none: there is no such kind
  virtual std::optional<std::string> read_record(const std::string& kind, const std::string& name) const = 0;
  virtual void put_record(const std::string& kind, const std::string& name, const std::string& text) = 0;
  virtual void remove_record(const std::string& kind, const std::string& name) = 0;  // or there was none
};

inline constexpr std::size_t kMostRecordBytes = std::size_t{1} << 20;
// 1 to 130 letters, digits, '-', '_', '.' and '~' (which no name of a channel has), a letter or digit first.
bool is_record_name(std::string_view name);
bool is_record_kind(std::string_view kind);  // 1 to 32 small letters, none of the names above

// A folder, which is made when `create` and its parent exists; http://HOST/PATH or https://, which is read alone; s3://BUCKET/PREFIX.
// Errors: not_found, already_exists (a user's folder), invalid_argument (a URL that is none), unsupported, io.
std::unique_ptr<Store> open_store(const std::string& place, bool create = false, const StoreOptions& options = {});

}  // namespace lockstep
