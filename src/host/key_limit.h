// A limit of the server, with the share of it that one API key may use. Plain values.
//   const KeyLimit limit(options.max_sessions, options.key_share); limit.check_room(all, own, "sessions");
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep {

class KeyLimit {
 public:
  KeyLimit(std::int64_t most, std::int64_t percent);
  std::int64_t most() const { return most_; }
  std::int64_t share() const { return share_; }
  // Checks before one more is made. Error resource_exhausted when `all` of them, or `own` of this key, reach the limit; `options` name the limit's options,
  // `remedy` (if not empty) says what the client can do.
  void check_room(std::int64_t all, std::int64_t own, std::string_view what, std::string_view remedy = {}, std::string_view options = "--key-share") const;
  // The same for `more` bytes; errors are in megabytes.
  void check_bytes(std::int64_t all, std::int64_t own, std::int64_t more, std::string_view what, std::string_view remedy, std::string_view options) const;

 private:
  std::int64_t most_, share_;
};

}  // namespace lockstep
