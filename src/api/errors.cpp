#include "api/errors.h"

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/server_paths.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

struct StatusName {
  int status;
  std::string_view type, code;
};
constexpr StatusName kStatusNames[] = {
    {400, "invalid_request_error", "invalid_argument"},
    {401, "authentication_error", "invalid_api_key"},
    {403, "permission_error", "permission_denied"},
    {404, "invalid_request_error", "not_found"},
    {405, "invalid_request_error", "method_not_allowed"},
    {408, "invalid_request_error", "request_timeout"},
    {409, "invalid_request_error", "already_exists"},
    {410, "invalid_request_error", "gone"},
    {413, "invalid_request_error", "body_too_large"},
    {414, "invalid_request_error", "target_too_long"},
    {415, "invalid_request_error", "unsupported_media_type"},
    {417, "invalid_request_error", "expectation_failed"},
    {421, "invalid_request_error", "host_not_allowed"},
    {422, "invalid_request_error", "invalid_argument"},
    {425, "server_error", "unavailable"},
    {429, "rate_limit_error", "rate_limit_exceeded"},
    {431, "invalid_request_error", "headers_too_large"},
    {501, "invalid_request_error", "unsupported"},
    {503, "server_error", "unavailable"},
};

// A message may repeat what a client sent, in several copies: a body of a few kilobytes may be hundreds of megabytes once it is unpacked. The longest of the
// server's own is the list of its routes.
constexpr std::size_t kLongestMessage = 16384;

std::string shortened(std::string_view text, std::size_t most) { return std::string(text.substr(0, most)) + (text.size() > most ? "..." : ""); }

std::string body_of(int status, std::string_view message, const std::string& param, std::string_view word) {
  StatusName name{status, "server_error", "internal"};
  for (const StatusName& known : kStatusNames)
    if (known.status == status) name = known;
  Json error{{"message", shortened(message, kLongestMessage)}, {"type", name.type}, {"param", nullptr}, {"code", word.empty() ? name.code : word}};
  if (!param.empty()) error["param"] = param;
  return Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

struct Described {
  int status;
  std::string body;
};
Described describe(const std::exception& e) {
  if (const auto* request = dynamic_cast<const RequestError*>(&e)) {
    const int status = request->status() ? request->status() : http_status(request->code());
    // An error is named by its word, else by its own status, else by its code.
    const bool by_code = request->word().empty() && !request->status() && status != 429;
    return {status, body_of(status, e.what(), request->param(), by_code ? error_code_name(request->code()) : request->word())};
  }
  if (const auto* error = dynamic_cast<const Error*>(&e)) {
    const int status = http_status(error->code());
    return {status, body_of(status, without_server_paths(e.what()), {}, status == 429 ? std::string_view() : error_code_name(error->code()))};
  }
  if (dynamic_cast<const std::bad_alloc*>(&e)) return {500, body_of(500, "the server has run out of memory", {}, "resource_exhausted")};
  log_error("an unforeseen exception in an api", {{"reason", e.what()}});
  return {500, body_of(500, "internal error; the server's log says more", {}, {})};
}
}  // namespace

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return 400;
    case ErrorCode::unsupported:
      return 400;
    case ErrorCode::not_found:
      return 404;
    case ErrorCode::already_exists:
      return 409;
    case ErrorCode::resource_exhausted:
      return 429;
    case ErrorCode::cancelled:
      return 503;  // cancelled by the server: a client that cancels sees no answer
    case ErrorCode::corrupt_file:
    case ErrorCode::io:
    case ErrorCode::numeric:
    case ErrorCode::internal:
      break;
  }
  return 500;
}

std::string error_body(const std::exception& error) { return describe(error).body; }

ApiResponse error_response(const std::exception& error) {
  Described d = describe(error);
  // The reason goes to the log, not to the client.
  if (d.status == 500) log_warning("a request failed", {{"status", d.status}, {"reason", error.what()}});
  ApiResponse response{d.status, "application/json", std::move(d.body), {}};
  if (d.status == 429 || d.status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

ApiResponse error_response_of(int status, std::string_view message) { return {status, "application/json", body_of(status, message, {}, {}), {}}; }

std::string shown(std::string_view text) { return shortened(text, 80); }

}  // namespace lockstep
