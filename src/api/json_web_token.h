// Short-lived tokens that stand for an API key (JSON web tokens, RFC 7519, HMAC-SHA256): the key's owner, issue and expiry time. Signed with a key of
// the server's own, so none is stored. No token is ever logged. Read-only once made; then any thread.
//   TokenSigner signer("state/token-key", 3600); const std::string token = signer.sign("ann", now); signer.owner_of(token, now)
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct TokenClaims {
  std::string owner;
  std::string key;  // TokenSigner::mark_of the key that it was exchanged for; empty: none is named
};

class TokenSigner {
 public:
  // Reads the key from `key_file`, or makes that file with a new one, readable for its owner alone (mode 600). `seconds`: how long a token is
  // valid. Errors: io; invalid_argument for a file that others may read; corrupt_file for one that holds no key.
  TokenSigner(const std::filesystem::path& key_file, std::int64_t seconds);

  std::int64_t seconds() const { return seconds_; }
  // `now` in Unix seconds, `key_hash` the hexadecimal SHA-256 of the owner's key ("": none). Claims: iss, sub (the owner), org_id, iat, exp, key.
  std::string sign(std::string_view owner, std::int64_t now, std::string_view key_hash = {}) const;
  // A short mark by which one key of an owner differs from the next, and which says nothing of the key; "" of "".
  std::string mark_of(std::string_view key_hash) const;
  // The claims of a token; empty: it was not signed here, or has expired.
  std::optional<TokenClaims> read(std::string_view token, std::int64_t now) const;
  std::optional<std::string> owner_of(std::string_view token, std::int64_t now) const;
  // Whether a credential has the form of a token: "eyJ...", three parts.
  static bool is_token(std::string_view credential);

 private:
  std::string signature(std::string_view text) const;
  std::string key_;
  std::int64_t seconds_;
};

}  // namespace lockstep
