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

// Whose an open request is.
struct RequestOwner {
  std::shared_ptr<ShareAccount> account;
  bool is_stream = true;  // counts among the streams of its key
};

class RequestBounds {
 public:
  // `refused` counts those that find no place.
  RequestBounds(std::string model, std::int64_t most, std::atomic<std::uint64_t>& refused) : model_(std::move(model)), most_(most), refused_(refused) {}

  // How many requests a key may have open; keys that are not named, as many as max_open.
  void set_streams(std::map<std::string, std::int64_t> most);
  // Places for all of them, which are one key's, or for none. Errors: resource_exhausted; invalid_argument for more than a key ever gets.
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
