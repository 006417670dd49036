// Decides whether a request is allowed, by its headers: API key, Host name (against DNS rebinding), and origin (CORS). Knows no route and no socket.
// Read-only once filled; then any thread.
//   if (auto refusal = access.refuse_site(head)) ...;  access.answer_headers(head);  access.preflight(head, "GET, POST")
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/api_keys.h"
#include "api/exchange.h"
#include "api/json_web_token.h"
#include "api/rate_limits.h"

namespace lockstep {

class Access {
 public:
  std::shared_ptr<const KeyRing> keys;        // null: nobody needs one
  std::shared_ptr<const TokenSigner> tokens;  // its tokens are accepted for keys; null: none are
  std::shared_ptr<RateLimits> rates;          // of keys; null: no key has limits
  std::vector<std::string> cors_origins;      // "https://example.com"; "*": any
  // True where the server listens on a loopback address: then a Host that is neither a loopback name nor in `hosts`, and an
  // origin that is neither the server's own nor in cors_origins, is refused. (DNS rebinding: a web page whose name is made to
  // resolve to this machine sends that name as Host.)
  bool loopback = false;
  std::vector<std::string> hosts;  // besides localhost, 127.0.0.0/8 and [::1]; when not empty, Host is checked on any address

  // Error invalid_argument: an origin or a host that cannot be one.
  void check() const;
  std::optional<ApiResponse> refuse_site(const ApiRequest& head) const;
  // Sets `key_name` to the owner of the request's key or token; a refusal (401) for a missing or unknown one. A token is valid until it
  // expires, and only while the key that it was exchanged for is its owner's.
  std::optional<ApiResponse> refuse_key(const ApiRequest& head, std::string* key_name) const;
  HeaderList answer_headers(const ApiRequest& head) const;
  bool is_preflight(const ApiRequest& head) const;
  ApiResponse preflight(const ApiRequest& head, const std::string& methods) const;

 private:
  bool allowed_origin(std::string_view origin) const;
  bool allowed_host(std::string_view host) const;
};

// The name under which limits count a request: `key_name`, or if it is empty (the server asks for no key) a hash of the key that the request
// has all the same, or "anyone".
std::string owner_of(const ApiRequest& head, const std::string& key_name);

}  // namespace lockstep
