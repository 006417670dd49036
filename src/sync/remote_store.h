// The common base of stores behind a network: everything is read from URL/PATH, with the paths of a folder store. Any thread.
//   class S3Store final : public RemoteStore { ... };
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "sync/store.h"
#include "sync/transfer.h"

namespace lockstep {

// The path of an object or a manifest in every store, "objects/ab/abcd...", "manifests/abcd....json"; and those of channels and records.
std::string stored_path(StoredKind kind, const std::string& digest);
std::string channel_path(const std::string& name);
std::string record_path(const std::string& kind, const std::string& name);

class RemoteStore : public Store {
 public:
  std::string label() const override { return label_; }
  std::optional<std::uint64_t> size(StoredKind kind, const std::string& digest) const override;
  std::string read(StoredKind kind, const std::string& digest, std::uint64_t offset, std::uint64_t bytes) const override;
  void stream(StoredKind kind, const std::string& digest, std::uint64_t offset, std::uint64_t bytes, const Sink& sink) const override;
  bool is_far() const override { return true; }
  std::optional<bool> gives_ranges() const override {
    const Ranges known = ranges_;
    return known == Ranges::unknown ? std::nullopt : std::optional(known == Ranges::given);
  }
  std::optional<std::string> read_channel(const std::string& name) const override { return small(channel_path(name), 4096); }
  std::optional<std::string> read_record(const std::string& kind, const std::string& name) const override {
    return small(record_path(kind, name), kMostRecordBytes);
  }

 protected:
  // `label`: what messages name; `url`: without a slash at its end.
  RemoteStore(std::string label, std::string url, TransferOptions options) : label_(std::move(label)), url_(std::move(url)), transfer_(std::move(options)) {}
  HttpAnswer ask(const std::string& method, const std::string& path, std::uint64_t most_bytes, std::vector<std::string> headers = {},
                 std::string_view body = {}) const;
  // A small text and its ETag. One that has not changed since the last read is not sent again (If-None-Match). Nothing: 404.
  struct Small {
    std::string text, etag;
  };
  std::optional<Small> small_with_tag(const std::string& path, std::uint64_t most_bytes) const;
  std::optional<std::string> small(const std::string& path, std::uint64_t most_bytes) const;
  virtual void sign(HttpAsk&) const {}  // headers that every request has

  const std::string label_, url_;
  const Transfer transfer_;

 private:
  enum class Ranges { unknown, given, refused };
  mutable std::atomic<Ranges> ranges_{Ranges::unknown};
  mutable std::mutex mutex_;
  mutable std::map<std::string, Small> known_;  // by path; of channels and records that were read
};

std::unique_ptr<Store> open_http_store(const std::string& url, const StoreOptions& options);
std::unique_ptr<Store> open_s3_store(const std::string& url, const StoreOptions& options);
// The options that both stores pass on to their transfers.
TransferOptions transfer_options(const StoreOptions& options);

}  // namespace lockstep
