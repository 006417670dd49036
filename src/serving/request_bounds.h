// Limits how many requests of a service are open, in all and per API key. Any thread.
//   RequestBounds bounds("countdown-glm", 1024, statistics.refused); bounds.take(owners); ... bounds.give_back(owner);
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/fair_shares.h"

namespace lockstep {

// The owner of an open request.
struct RequestOwner {
  std::shared_ptr<ShareAccount> account;
  bool is_stream = true;  // counts among the streams of its key
};

class RequestBounds {
 public:
  // `refused` counts refused requests.
  RequestBounds(std::string model, std::int64_t most, std::atomic<std::uint64_t>& refused) : model_(std::move(model)), most_(most), refused_(refused) {}

  // How many requests a key may have open; other keys: max_open.
  void set_streams(std::map<std::string, std::int64_t> most);
  // Admits all of them, which belong to one key, or none. Errors: resource_exhausted; invalid_argument for more than the key's limit.
  void take(std::span<const RequestOwner> owners);
  void give_back(std::span<const RequestOwner> owners);
  std::int64_t open() const { return open_; }
  std::int64_t max_open() const { return most_; }

 private:
  void take_streams(std::span<const RequestOwner> owners);

  const std::string model_;
  const std::int64_t most_;
  std::atomic<std::uint64_t>& refused_;
  std::atomic<std::int64_t> open_{0};
  std::mutex mutex_;                                  // of both below
  std::map<std::string, std::int64_t> most_streams_;  // by key
  std::map<std::string, std::int64_t> streams_;       // open ones by key; a key without any has no entry
};

}  // namespace lockstep
