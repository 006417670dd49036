// Parses one HTTP/1.x request incrementally, within limits, with an error response for what is wrong. Strict where two readers could disagree on
// where a request ends (request smuggling): one Content-Length or one "Transfer-Encoding: chunked", never both, nothing else. Knows no socket. One
// object, one thread. Internal to http/.
//   RequestReader reader(limits); input.erase(0, reader.feed(input)); if (reader.state() == RequestReader::State::done) ...
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "api/exchange.h"

namespace lockstep {

struct HttpLimits {
  std::size_t max_header_bytes = 16 << 10;  // of request line and headers together
  std::size_t max_headers = 100;
  std::size_t max_target_bytes = 8 << 10;
  std::size_t max_body_bytes = 4 << 20;
};

class RequestReader {
 public:
  enum class State { headers, body, done, refused };

  explicit RequestReader(const HttpLimits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;

  // Parses what it can of `bytes` and returns how many it took; give the rest again, with more behind it. It takes nothing past the request's
  // end, and nothing of a body in the call that ends the headers: the caller may refuse the request by its headers.
  std::size_t feed(std::string_view bytes);
  // The same, and removes from `input` what it has taken.
  void take(std::string& input);
  State state() const { return state_; }

  // In State::body: the memory that the body takes, bytes: its Content-Length, or what has come of its chunks.
  std::size_t body_bytes() const;
  // Valid from State::body on; its `body` from State::done on.
  ApiRequest& request() { return request_; }
  bool keep_alive() const { return keep_alive_; }
  bool http10() const { return http10_; }
  bool expects_continue() const { return expects_continue_; }

  // In State::refused: the answer's status and text.
  int status() const { return status_; }
  const std::string& message() const { return message_; }

 private:
  struct Parser;
  void refuse(int status, std::string message);
  void read_head();
  void read_target(std::string_view target);
  void read_framing();

  HttpLimits limits_;
  std::unique_ptr<Parser> parser_;
  State state_ = State::headers;
  std::size_t head_bytes_ = 0;
  ApiRequest request_;
  bool keep_alive_ = false, http10_ = false, expects_continue_ = false;
  int status_ = 0;
  std::string message_;
};

// Whether a client's X-Request-Id may stand in logs and answers: 1 to 128 letters, digits, '-', '_', '.' and ':'.
bool is_request_id(std::string_view text);
// A new id, "req-" and 16 hex digits, never the same twice in a process.
std::string new_request_id();

}  // namespace lockstep
