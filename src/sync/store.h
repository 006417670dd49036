// A place that holds snapshots: objects and manifests, which are immutable and named by the SHA-256 of their bytes, and channels, which are small
// records that change. What is behind it (a folder, a server) is for who implements it.
//   const auto store = open_store("/mnt/weights");  store->put_manifest(text);  store->swap_channel("chat", before, after);
// Any thread may read. Writers hold writing(): two at once would delete each other's unfinished work (prune).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

enum class StoredKind { object, manifest };

class Store {
 public:
  // Bytes of an object that is written piece by piece; nobody sees it before commit(), which gives its name. Without commit() it is gone.
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
  virtual std::unique_ptr<Writer> write_object() = 0;
  // Its name, which is its SHA-256.
  virtual std::string put_manifest(const std::string& text) = 0;
  virtual std::vector<std::string> list(StoredKind kind) const = 0;  // sorted
  virtual void remove(StoredKind kind, const std::string& digest) = 0;

  virtual std::vector<std::string> channels() const = 0;                               // sorted
  virtual std::optional<std::string> read_channel(const std::string& name) const = 0;  // the record's text
  // Compare and swap: false, and nothing is written, when the record is not `before` (nothing: no such channel yet).
  virtual bool swap_channel(const std::string& name, const std::optional<std::string>& before, const std::string& after) = 0;

  // What the replicas that follow a channel say of themselves (sync/replica_record.h): a small record each, by name, which only its replica writes.
  // Error unsupported: the store keeps none.
  virtual std::vector<std::pair<std::string, std::string>> replicas(const std::string& channel) const;  // name and text, sorted
  virtual void put_replica(const std::string& channel, const std::string& name, const std::string& text);
  virtual void remove_replica(const std::string& channel, const std::string& name);
};

// A folder, which is made when `create` and its parent exists. Errors: not_found, already_exists (a user's folder), unsupported (a URL), io.
std::unique_ptr<Store> open_store(const std::string& place, bool create = false);

}  // namespace lockstep
