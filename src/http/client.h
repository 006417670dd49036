// One HTTP request, blocking: for the demo, for `lockstep chat --url` and for tests. Redirects are not followed. Any thread.
//   const HttpReply reply = http_call({.port = server.port(), .path = "/v1/models"});
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "api/exchange.h"

namespace lockstep {

struct HttpCall {
  std::string method = "GET";
  std::string host = "127.0.0.1";  // a name or an address
  std::uint16_t port = 0;
  std::string path = "/";
  std::string body = {};        // sent as application/json when not empty
  double timeout_seconds = 60;  // of each wait
  bool tls = false;             // with the server's certificate checked
  HeaderList headers = {};
  std::function<void(std::string_view)> on_data = {};  // gets the body of an answer with status 200 as it comes, instead of HttpReply::body
  std::function<bool()> stop = {};                     // polled; true: the call ends there
};
struct HttpReply {
  int status = 0;  // 0: stopped before there was one
  std::string body;
  bool stopped = false;
};
// Errors: io (no such host, no connection, silence, TLS, not HTTP), resource_exhausted (an answer above 64 MB).
HttpReply http_call(const HttpCall& call);

// The parts of an address such as "https://example.com:8443/v1/". `name`: the option or field, for the error invalid_argument.
struct HttpAddress {
  bool tls = false;
  std::string host;
  std::uint16_t port = 0;
  std::string path;  // without a slash at the end
};
HttpAddress parse_http_address(const std::string& url, const std::string& name);
// A call of `path` below the address's own path; a `key` that is not empty is sent as a bearer token.
HttpCall call_at(const HttpAddress& address, const std::string& method, const std::string& path, const std::string& key = {});

// Reads server-sent events that arrive in pieces of any size, and gives the text of each event's `data:`; comments and other fields are left out.
class EventReader {
 public:
  static constexpr std::size_t kMostEventBytes = 16 << 20;
  explicit EventReader(std::function<void(const std::string& data)> on_event) : on_event_(std::move(on_event)) {}
  void push(std::string_view bytes);  // Error io for an event above kMostEventBytes

 private:
  void end_line();
  std::function<void(const std::string&)> on_event_;
  std::string line_, data_;
  bool has_data_ = false, carriage_ = false;
};

}  // namespace lockstep
