#include "host/metadata_room.h"

#include "base/error.h"

namespace lockstep {

void MetadataRoom::check(const std::string& field, const KeptJson& value) const {
  if (value.bytes() > most_of_one_)
    fail(ErrorCode::invalid_argument, "{} has {} bytes of JSON, allowed are {} (--metadata-kilobytes)", field, value.bytes(), most_of_one_);
}

std::unique_lock<std::mutex> MetadataRoom::hold(const std::string& owner, std::int64_t more) {
  constexpr std::int64_t kLittle = 64;
  if (more <= kLittle) return {};
  std::unique_lock lock(mutex_);
  std::int64_t all = 0, own = 0;
  const Count count = [&](const std::string& whose, std::int64_t bytes) {
    all += bytes;
    if (whose == owner) own += bytes;
  };
  for (const Source& source : sources_) source(count);
  all_.check_bytes(all, own, more, "user_metadata and tags", "give things less of it, or delete checkpoints", "--key-share, --memory-megabytes");
  return lock;
}

}  // namespace lockstep
