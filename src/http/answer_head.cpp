#include "http/answer_head.h"

#include <fmt/format.h>

#include <ctime>

#include "base/log.h"

namespace lockstep {
namespace {
std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 422:
      return "Unprocessable Content";
    case 425:
      return "Too Early";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return status < 400 ? "OK" : "Error";
  }
}

// The date changes once a second, and many answers fall into one.
const std::string& http_date() {
  constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  thread_local std::time_t shown = -1;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now == shown) return text;
  std::tm t{};
  gmtime_r(&now, &t);
  text = fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", days[t.tm_wday], t.tm_mday, months[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
  shown = now;
  return text;
}

void append(std::string& text, std::string_view name, std::string_view value) {
  constexpr std::string_view kEnds("\r\n\0", 3);
  if (name.empty() || name.find_first_of(kEnds) != std::string_view::npos || name.find(':') != std::string_view::npos ||
      value.find_first_of(kEnds) != std::string_view::npos)
    return log_error("a header of an answer would end its line, and is left out");
  fmt::format_to(std::back_inserter(text), "{}: {}\r\n", name, value);
}
}  // namespace

std::string answer_head(const ResponseHead& head, const HeaderList& headers, const HeaderList& more) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: lockstep\r\nDate: {}\r\n", head.status, reason_of(head.status), http_date());
  if (!head.content_type.empty() && head.status != 204 && head.status != 304) append(text, "Content-Type", head.content_type);
  if (head.content_length && head.status != 204 && head.status != 304) fmt::format_to(std::back_inserter(text), "Content-Length: {}\r\n", *head.content_length);
  if (head.chunked) text += "Transfer-Encoding: chunked\r\n";
  if (!head.request_id.empty()) append(text, "X-Request-Id", head.request_id);
  for (const auto& [name, value] : headers) append(text, name, value);
  for (const auto& [name, value] : more) append(text, name, value);
  if (!head.keep_alive) text += "Connection: close\r\n";
  else if (head.http10) text += "Connection: keep-alive\r\n";
  text += "\r\n";
  return text;
}

}  // namespace lockstep
