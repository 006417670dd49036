#include "host/metadata_room.h"

#include "base/error.h"

namespace lockstep {

void MetadataRoom::check(const std::string& field, const ClientJson& value) const {
  if (value.bytes() > most_of_one_)
    fail(ErrorCode::invalid_argument, "{} has {} bytes of JSON, allowed are {} (--metadata-kilobytes)", field, value.bytes(), most_of_one_);
}

std::shared_ptr<void> MetadataRoom::hold(const std::string& owner, std::int64_t more) {
  constexpr std::int64_t kLittle = 64;
  if (more <= kLittle) return nullptr;
  std::unique_lock lock(mutex_);
  for (bool fits = false; !fits;) {
    std::int64_t all = 0, own = 0;
    const Count count = [&](const std::string& whose, std::int64_t bytes) {
      all += bytes;
      if (whose == owner) own += bytes;
    };
    for (const auto& [whose, bytes] : coming_) count(whose, bytes);
    for (const Source& source : sources_) source(count);
    try {
      all_.check_bytes(all, own, more, "user_metadata, tags and custom losses", "give things less of it, or delete checkpoints",
                       "--key-share, --memory-megabytes");
      fits = true;
    } catch (const Error&) {
      if (coming_.empty()) throw;
      arrived_.wait(lock);  // what has just been added to its registry was counted twice; what cannot be written goes
    }
  }
  coming_[owner] += more;
  return {this, [this, owner, more](void*) {
            const std::lock_guard its(mutex_);
            const auto found = coming_.find(owner);
            if ((found->second -= more) == 0) coming_.erase(found);
            arrived_.notify_all();
          }};
}

}  // namespace lockstep
