#include "base/hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"

namespace lockstep {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (!state_->context || EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) fail(ErrorCode::internal, "OpenSSL offers no SHA-256");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;

void Sha256::update(const void* data, std::size_t bytes) { EVP_DigestUpdate(state_->context, data, bytes); }

std::string Sha256::hex() {
  unsigned char digest[32];
  unsigned length = 0;
  EVP_DigestFinal_ex(state_->context, digest, &length);
  return fmt::format("{:02x}", fmt::join(digest, digest + length, ""));
}

std::string sha256_hex(std::string_view data) {
  Sha256 hash;
  hash.update(data);
  return hash.hex();
}

std::uint64_t xxh3(const void* data, std::size_t bytes, std::uint64_t seed) { return XXH3_64bits_withSeed(data, bytes, seed); }
std::string hex64(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::string xxh3_128_hex(const void* data, std::size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return fmt::format("{:016x}{:016x}", static_cast<std::uint64_t>(hash.high64), static_cast<std::uint64_t>(hash.low64));
}

}  // namespace lockstep
