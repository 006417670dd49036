#include "api/access.h"

#include <algorithm>
#include <chrono>

#include "api/errors.h"
#include "base/ascii.h"
#include "base/hash.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostRequestHeaders = 2048;

// "example.com:8080" -> "example.com"; "[::1]:8080" -> "[::1]".
std::string_view name_of_host(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool is_loopback_name(std::string_view name) {
  if (name == "localhost" || name == "[::1]" || name == "localhost.") return true;
  if (!name.starts_with("127.")) return false;
  return name.find_first_not_of("0123456789.") == std::string_view::npos && std::count(name.begin(), name.end(), '.') == 3;
}

std::string_view authority_of(std::string_view origin) {
  const std::size_t slashes = origin.find("://");
  return slashes == std::string_view::npos ? std::string_view() : origin.substr(slashes + 3);
}

// Whether `text` is a list of header names as a browser sends it, with no character that could end a line.
bool is_header_list(std::string_view text) {
  return !text.empty() && text.size() <= kMostRequestHeaders && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == ',' || c == ' ';
  });
}

ApiResponse refusal(int status, std::string message, std::string word) {
  return lockstep::error_response(RequestError(ErrorCode::invalid_argument, {}, std::move(message), status, std::move(word)));
}

}  // namespace

void Access::check() const {
  for (const std::string& origin : cors_origins) {
    const std::string_view authority = authority_of(origin);
    if (origin != "*" && (authority.empty() || authority.find('/') != std::string_view::npos))
      fail(ErrorCode::invalid_argument, "cors-origin is '{}', allowed is an origin such as https://example.com, without a path, or *", origin);
  }
  for (const std::string& host : hosts)
    if (host.empty() || name_of_host(host) != host)
      fail(ErrorCode::invalid_argument, "allow-host is '{}', allowed is a name such as example.com, without a port", host);
}

bool Access::allowed_origin(std::string_view origin) const {
  return std::any_of(cors_origins.begin(), cors_origins.end(), [&](const std::string& one) { return one == "*" || one == origin; });
}

bool Access::allowed_host(std::string_view host) const {
  const std::string name = ascii_lower(name_of_host(host));
  if (is_loopback_name(name)) return true;
  return std::any_of(hosts.begin(), hosts.end(), [&](const std::string& one) { return ascii_lower(one) == name; });
}

std::optional<ApiResponse> Access::refuse_site(const ApiRequest& head) const {
  const std::string_view host = head.header("host");
  if ((loopback || !hosts.empty()) && !host.empty() && !allowed_host(host))
    return refusal(421,
                   fmt::format("this server is not '{}'; it answers to localhost{}{} (--allow-host adds a name)", shown(host), hosts.empty() ? "" : ", ",
                               fmt::join(hosts, ", ")),
                   "host_not_allowed");
  const std::string_view origin = head.header("origin");
  if (loopback && !origin.empty() && ascii_lower(authority_of(origin)) != ascii_lower(host) && !allowed_origin(origin))
    return refusal(403, fmt::format("the origin '{}' may not ask this server (--cors-origin allows one)", shown(origin)), "origin_not_allowed");
  return std::nullopt;
}

std::optional<ApiResponse> Access::refuse_key(const ApiRequest& head, std::string* key_name) const {
  const std::string_view given = head.header("authorization"), plain = head.header("x-api-key");  // as clients of the training API give it
  if (const std::string_view token = plain.empty() ? given.substr(std::min(given.size(), given.rfind(' ') + 1)) : plain;
      tokens && TokenSigner::is_token(token)) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::optional<TokenClaims> claims = tokens->read(token, std::chrono::duration_cast<std::chrono::seconds>(now).count());
    if (claims && (!keys || (!claims->key.empty() && claims->key == tokens->mark_of(keys->now()->hash_of(claims->owner))))) {
      *key_name = claims->owner;
      return std::nullopt;
    }
    ApiResponse response = refusal(401, "the token has expired, was not signed here, or its key is not known any more", "invalid_token");
    response.headers.emplace_back("WWW-Authenticate", "Bearer error=\"invalid_token\"");
    return response;
  }
  if (!keys) return std::nullopt;
  const std::shared_ptr<const ApiKeys> known = keys->now();
  const std::string* owner = plain.empty() ? known->owner_of_authorization(given) : known->owner_of(plain);
  if (owner) {
    *key_name = *owner;
    return std::nullopt;
  }
  ApiResponse response = refusal(
      401, given.empty() && plain.empty() ? "an API key is missing; it is given as `Authorization: Bearer KEY`, or X-API-Key" : "the API key is not known here",
      "invalid_api_key");
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HeaderList Access::answer_headers(const ApiRequest& head) const {
  if (cors_origins.empty()) return {};
  const std::string_view origin = head.header("origin");
  const bool any = std::find(cors_origins.begin(), cors_origins.end(), "*") != cors_origins.end();
  HeaderList headers;
  if (!any) headers.emplace_back("Vary", "Origin");
  if (origin.empty() || !allowed_origin(origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : std::string(origin));
  headers.emplace_back("Access-Control-Expose-Headers",
                       "X-Request-Id, Retry-After, x-ratelimit-limit-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-requests, "
                       "x-ratelimit-remaining-tokens, x-ratelimit-reset-requests, x-ratelimit-reset-tokens");
  return headers;
}

bool Access::is_preflight(const ApiRequest& head) const {
  return head.method == "OPTIONS" && !head.header("origin").empty() && !head.header("access-control-request-method").empty();
}

ApiResponse Access::preflight(const ApiRequest& head, const std::string& methods) const {
  ApiResponse response{204, "", "", {{"Allow", methods}}};
  if (!allowed_origin(head.header("origin"))) return response;
  response.headers.emplace_back("Access-Control-Allow-Methods", methods);
  const std::string_view wanted = head.header("access-control-request-headers");
  if (is_header_list(wanted)) response.headers.emplace_back("Access-Control-Allow-Headers", wanted);
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  return response;
}

std::string owner_of(const ApiRequest& head, const std::string& key_name) {
  if (!key_name.empty()) return key_name;
  std::string_view key = head.header("x-api-key");
  if (key.empty()) {
    key = head.header("authorization");
    if (key.starts_with("Bearer ")) key.remove_prefix(7);
  }
  return key.empty() ? std::string("anyone") : "key-" + sha256_hex(key).substr(0, 24);
}

}  // namespace lockstep
