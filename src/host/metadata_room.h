// Limits the memory of data that clients attach to sessions, models and checkpoints (user_metadata, tags) and of the losses that they trace: per object, per
// API key, and in all. Each registry counts its own objects under its own lock. Any thread.
//   MetadataRoom room(16 << 10, KeyLimit(bytes, 50)); room.add_source(count);
//   const auto held = room.hold(owner, record.user_metadata.bytes()); write(record); records.add(record);   // the room is reserved until `held` ends
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/client_json.h"
#include "host/key_limit.h"

namespace lockstep {

class MetadataRoom {
 public:
  using Count = std::function<void(const std::string& owner, std::int64_t bytes)>;
  // Calls `count` for each object of its registry.
  using Source = std::function<void(const Count& count)>;

  MetadataRoom(std::int64_t most_of_one, const KeyLimit& all) : most_of_one_(most_of_one), all_(all) {}
  // Before anything else is called.
  void add_source(Source source) { sources_.push_back(std::move(source)); }
  // Error invalid_argument: `field` is larger than an object's limit.
  void check(const std::string& field, const ClientJson& value) const;
  // Reserves `more` bytes of an owner until the result is destroyed, which must be after its registry holds the object. When there is no room it waits for
  // objects on their way into a registry, and fails when there are none. Small amounts are not counted (null): the limits on objects bound them. Error
  // resource_exhausted.
  [[nodiscard]] std::shared_ptr<void> hold(const std::string& owner, std::int64_t more);

 private:
  const std::int64_t most_of_one_;
  const KeyLimit all_;
  std::vector<Source> sources_;
  std::mutex mutex_;
  std::map<std::string, std::int64_t> coming_;  // bytes of each owner that are held
  std::condition_variable arrived_;
};

}  // namespace lockstep
