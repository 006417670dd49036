// One HTTP request, blocking, to a server that is meant to be near: for the demo and for tests. No TLS, no redirects.
// Any thread.
//   const HttpReply reply = http_call({.port = server.port(), .path = "/v1/models"});
#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

struct HttpCall {
  std::string method = "GET";
  std::string host = "127.0.0.1";  // an IPv4 address
  std::uint16_t port = 0;
  std::string path = "/";
  std::string body = {};           // sent as application/json when not empty
  double timeout_seconds = 60;     // of each wait
};
struct HttpReply {
  int status = 0;
  std::string body;
};
// Errors: io (no connection, silence, not HTTP), resource_exhausted (an answer above 64 MB).
HttpReply http_call(const HttpCall& call);

}  // namespace lockstep
