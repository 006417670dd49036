#include "base/running_digest.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep {

struct RunningDigest::State {
  XXH3_state_t state;
};

RunningDigest::RunningDigest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->state); }
RunningDigest::~RunningDigest() = default;
RunningDigest::RunningDigest(RunningDigest&&) noexcept = default;
RunningDigest& RunningDigest::operator=(RunningDigest&&) noexcept = default;

void RunningDigest::update(const void* data, std::size_t bytes) { XXH3_128bits_update(&state_->state, data, bytes); }

std::string RunningDigest::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->state);
  return fmt::format("{:016x}{:016x}", static_cast<std::uint64_t>(hash.high64), static_cast<std::uint64_t>(hash.low64));
}

}  // namespace lockstep
