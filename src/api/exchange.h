// What an API sees of a request and of its answer: method, path, body; a status and bytes. Knows no socket: http/ implements
// Responder and calls Api, and tests do the same without a network.
//   api.handle(request, responder);  ...  responder->send({200, "application/json", body});
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

struct ApiRequest {
  std::string method;        // "GET"
  std::string path;          // "/v1/models", without the query
  std::string query;         // behind '?', as it came
  std::string content_type;  // as it came, or empty
  std::string body;
};

struct ApiResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // besides what http/ adds; no user data
};

// The answer to one request: send() once, or begin_stream(), stream() any number of times, end_stream(). Any thread, one at a
// time; none of them blocks. What comes after the client has gone is dropped.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void send(ApiResponse response) = 0;
  virtual void begin_stream(std::string_view content_type) = 0;
  virtual void stream(std::string data) = 0;
  virtual void end_stream() = 0;
  // Called once, on any thread, when nobody waits for the answer any more (the client has gone, or the server stops); at once
  // when that was before. Dropped with the answer's end.
  virtual void on_abandoned(std::function<void()> callback) = 0;
};

class Api {
 public:
  virtual ~Api() = default;
  // Answers now or later; throws nothing. Any thread.
  virtual void handle(const ApiRequest& request, std::shared_ptr<Responder> responder) = 0;
  // An answer of http/'s own (a malformed request, a limit) in this API's words.
  virtual ApiResponse error_response(int status, std::string_view message) const = 0;
};

}  // namespace lockstep
