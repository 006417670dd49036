// Maps an error to an HTTP status and to OpenAI's error object: {"error": {"message", "type", "param", "code"}}. The only place that does. Knows no
// route. Any thread.
//   responder->send(error_response(error));
#pragma once
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "api/exchange.h"
#include "base/error.h"

namespace lockstep {

// An error in a request, with the field at fault ("prompt[2]") and, where they are not those of the ErrorCode, the HTTP status and the code.
class RequestError : public Error {
 public:
  RequestError(ErrorCode code, std::string param, std::string message, int status = 0, std::string word = {})
      : Error(code, std::move(message)), param_(std::move(param)), status_(status), word_(std::move(word)) {}
  const std::string& param() const { return param_; }  // empty: none
  int status() const { return status_; }               // HTTP status; 0: http_status() of its code
  const std::string& word() const { return word_; }    // empty: the name of its code

 private:
  std::string param_;
  int status_;
  std::string word_;
};

int http_status(ErrorCode code);
// The body of an error: JSON, one line, of whose message 16,384 bytes at the most. It does not quote an exception that is no Error.
std::string error_body(const std::exception& error);
ApiResponse error_response(const std::exception& error);
// For a fault that has no Error, such as a limit of HTTP itself.
ApiResponse error_response_of(int status, std::string_view message);
// What a client sent, short enough to be repeated in a message.
std::string shown(std::string_view text);

}  // namespace lockstep
