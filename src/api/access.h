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
  std::shared_ptr<const TokenSigner> tokens;  // whose tokens stand for keys; null: nobody's
  std::shared_ptr<RateLimits> rates;          // of keys; null: none has any
  std::vector<std::string> cors_origins;      // "https://example.com"; "*": any
  // True where the server listens on a loopback address: then a Host that is neither a loopback name nor in `hosts`, and an
  // origin that is neither the server's own nor in cors_origins, is refused. A page elsewhere whose name is made to point to
  // this machine gives itself away by its name.
  bool loopback = false;
  std::vector<std::string> hosts;  // besides localhost, 127.0.0.0/8 and [::1]; when not empty they are asked for everywhere

  // Error invalid_argument: an origin or a host that cannot be one.
  void check() const;
  std::optional<ApiResponse> refuse_site(const ApiRequest& head) const;
  // Whose key the request has; without one a refusal (401). A token is good while the key that it was exchanged for is its owner's.
  std::optional<ApiResponse> refuse_key(const ApiRequest& head, std::string* key_name) const;
  HeaderList answer_headers(const ApiRequest& head) const;
  bool is_preflight(const ApiRequest& head) const;
  ApiResponse preflight(const ApiRequest& head, const std::string& methods) const;

 private:
  bool allowed_origin(std::string_view origin) const;
  bool allowed_host(std::string_view host) const;
};

// Whoever has a key is told apart by it, also where the server does not ask for one; `key_name`: of one that it asked for.
std::string owner_of(const ApiRequest& head, const std::string& key_name);

}  // namespace lockstep
