#include "api/json_web_token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/base64.h"
#include "base/entropy.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace lockstep {
namespace {
constexpr std::size_t kKeyDigits = 64;
constexpr std::size_t kLongestToken = 2048;
constexpr std::string_view kHead = R"({"alg":"HS256","typ":"JWT"})";

// The key is made once and then never changed, so that tokens stay valid over a restart.
std::string read_or_make_key(const std::filesystem::path& path) {
  const int made = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (made >= 0) {
    std::string key;
    for (std::size_t i = 0; i < kKeyDigits / 16; ++i) key += hex64(random_bits());
    const bool written = ::write(made, key.data(), key.size()) == static_cast<ssize_t>(key.size()) && fsync(made) == 0;
    const int error = errno;
    ::close(made);
    if (!written) {
      ::unlink(path.c_str());
      fail(ErrorCode::io, "cannot write '{}': {}", path.string(), std::generic_category().message(error));
    }
    return key;
  }
  if (errno != EEXIST) fail(ErrorCode::io, "cannot make '{}': {}", path.string(), std::generic_category().message(errno));
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) fail(ErrorCode::io, "cannot read '{}': {}", path.string(), std::generic_category().message(errno));
  if ((status.st_mode & 077) != 0)
    fail(ErrorCode::invalid_argument, "'{}' has mode {:o}, allowed is 600: it signs the tokens of all clients", path.string(), status.st_mode & 0777);
  const std::string key = read_file(path, 4096);
  if (key.size() != kKeyDigits || key.find_first_not_of("0123456789abcdef") != std::string::npos)
    fail(ErrorCode::corrupt_file, "'{}' holds no key of {} hexadecimal digits; without the file a new key is made", path.string(), kKeyDigits);
  return key;
}
}  // namespace

TokenSigner::TokenSigner(const std::filesystem::path& key_file, std::int64_t seconds) : key_(read_or_make_key(key_file)), seconds_(seconds) {}

bool TokenSigner::is_token(std::string_view credential) { return credential.starts_with("eyJ") && std::count(credential.begin(), credential.end(), '.') == 2; }

std::string TokenSigner::signature(std::string_view text) const {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (!HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &length))
    fail(ErrorCode::internal, "a token could not be signed");
  return to_base64({reinterpret_cast<const char*>(digest), length}, Base64::url);
}

std::string TokenSigner::mark_of(std::string_view key_hash) const {
  return key_hash.empty() ? std::string() : signature("key " + std::string(key_hash)).substr(0, 22);
}

std::string TokenSigner::sign(std::string_view owner, std::int64_t now, std::string_view key_hash) const {
  nlohmann::ordered_json claims{{"iss", "lockstep"}, {"sub", owner}, {"org_id", "lockstep"}, {"iat", now}, {"exp", now + seconds_}};
  if (!key_hash.empty()) claims["key"] = mark_of(key_hash);
  const std::string text = to_base64(kHead, Base64::url) + "." + to_base64(claims.dump(), Base64::url);
  return text + "." + signature(text);
}

std::optional<TokenClaims> TokenSigner::read(std::string_view token, std::int64_t now) const {
  if (token.size() > kLongestToken || !is_token(token)) return std::nullopt;
  const std::size_t end = token.rfind('.');
  const std::string right = signature(token.substr(0, end));
  const std::string_view given = token.substr(end + 1);
  if (given.size() != right.size() || CRYPTO_memcmp(given.data(), right.data(), right.size()) != 0) return std::nullopt;
  // The signature is right, so the text below was written by this server.
  const std::size_t begin = token.find('.') + 1;
  const DecodedBase64 text = from_base64(token.substr(begin, end - begin), Base64::url);
  if (!text.fault.empty() || token.substr(0, begin - 1) != to_base64(kHead, Base64::url)) return std::nullopt;
  const nlohmann::ordered_json claims = nlohmann::ordered_json::parse(text.bytes, nullptr, false);
  if (claims.is_discarded() || !claims.is_object() || !claims.contains("exp") || !claims["exp"].is_number_integer() || !claims.contains("sub") ||
      !claims["sub"].is_string())
    return std::nullopt;
  if (claims["exp"].get<std::int64_t>() <= now) return std::nullopt;
  const auto key = claims.find("key");
  return TokenClaims{claims["sub"].get<std::string>(), key != claims.end() && key->is_string() ? key->get<std::string>() : std::string()};
}

std::optional<std::string> TokenSigner::owner_of(std::string_view token, std::int64_t now) const {
  const std::optional<TokenClaims> claims = read(token, now);
  return claims ? std::optional(claims->owner) : std::nullopt;
}

}  // namespace lockstep
