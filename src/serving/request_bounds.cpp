#include "serving/request_bounds.h"

#include "base/error.h"

namespace lockstep {

void RequestBounds::set_streams(std::map<std::string, std::int64_t> most) {
  const std::lock_guard lock(mutex_);
  most_streams_ = std::move(most);
}

void RequestBounds::take(std::span<const RequestOwner> owners) {
  const auto more = static_cast<std::int64_t>(owners.size());
  const std::int64_t before = open_.fetch_add(more);
  try {
    if (before + more > most_) {
      refused_ += owners.size();
      fail(ErrorCode::resource_exhausted, "model '{}' has {} open requests and gets {} more, allowed are {} (--max-open); try again later", model_, before,
           more, most_);
    }
    take_streams(owners);
  } catch (...) {
    open_ -= more;
    throw;
  }
}

void RequestBounds::take_streams(std::span<const RequestOwner> owners) {
  const std::string& key = owners.front().account->key;
  const std::lock_guard lock(mutex_);
  if (const auto most = most_streams_.find(key); most != most_streams_.end() && owners.front().is_stream) {
    const auto more = static_cast<std::int64_t>(owners.size());
    if (more > most->second)
      fail(ErrorCode::invalid_argument, "the request asks for {} sequences, allowed are {} at a time (streams of this API key)", more, most->second);
    const auto own = streams_.contains(key) ? streams_.at(key) : 0;
    if (own + more > most->second) {
      refused_ += owners.size();
      fail(ErrorCode::resource_exhausted, "this API key has {} open sequences and gets {} more, allowed are {} (its streams); try again later", own, more,
           most->second);
    }
  }
  for (const RequestOwner& owner : owners)
    if (owner.is_stream) ++streams_[owner.account->key];
}

void RequestBounds::give_back(std::span<const RequestOwner> owners) {
  open_ -= static_cast<std::int64_t>(owners.size());
  const std::lock_guard lock(mutex_);
  for (const RequestOwner& owner : owners) {
    if (!owner.is_stream) continue;
    const auto open = streams_.find(owner.account->key);
    if (--open->second == 0) streams_.erase(open);
  }
}

}  // namespace lockstep
