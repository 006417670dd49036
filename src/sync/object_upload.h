// Uploads an object to a server that needs its name, the digest, before the bytes: they are collected in an unnamed file, and uploaded when complete,
// large ones in parts. One thread; `part` is called from several.
//   return std::make_unique<ObjectUpload>(std::move(calls));
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "sync/store.h"

namespace lockstep {

// What the server is asked. Each throws Error.
struct UploadCalls {
  std::function<void(const std::string& digest, std::string_view bytes)> put;
  std::function<std::string(const std::string& digest)> begin;                                                              // gives the upload's name
  std::function<std::string(const std::string& digest, const std::string& upload, int part, std::string_view bytes)> part;  // from 1; gives its tag
  std::function<void(const std::string& digest, const std::string& upload, const std::vector<std::string>& tags)> end;
  std::function<void(const std::string& digest, const std::string& upload)> abandon;
};

class ObjectUpload final : public Store::Writer {
 public:
  explicit ObjectUpload(UploadCalls calls);  // Error io
  ~ObjectUpload() override;
  void write(std::string_view bytes) override;
  std::uint64_t bytes() const override { return bytes_; }
  std::string commit() override;

 private:
  std::string read(std::uint64_t offset, std::uint64_t bytes) const;
  UploadCalls calls_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
  Sha256 hash_;
};

}  // namespace lockstep
