#include "http/client.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>

#include "base/error.h"
#include "http/client_socket.h"

namespace lockstep {
namespace http = boost::beast::http;

namespace {
constexpr std::size_t kMostBytes = 64 << 20;

bool has_break(std::string_view text) { return text.find_first_of("\r\n") != std::string_view::npos || text.find('\0') != std::string_view::npos; }

std::string request_text(const HttpCall& call) {
  const std::string host = call.host.find(':') == std::string::npos ? call.host : "[" + call.host + "]";
  std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n", call.method, call.path, host, call.port);
  if (!call.body.empty()) request += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", call.body.size());
  for (const auto& [name, value] : call.headers) {
    if (has_break(value)) fail(ErrorCode::invalid_argument, "the header {} has a line break in its value", name);
    request += name + ": " + value + "\r\n";
  }
  return request + "\r\n" + call.body;
}
}  // namespace

HttpReply http_call(const HttpCall& call) {
  ClientSocket socket({call.host, call.port, call.tls, call.timeout_seconds}, call.stop);
  if (!socket.send(request_text(call))) return {.stopped = true};

  http::response_parser<http::string_body> parser;
  parser.eager(true);
  parser.body_limit(boost::none);  // counted below instead: a body given to on_data has no bound
  if (call.method == "HEAD") parser.skip(true);
  std::string held;
  std::size_t body_bytes = 0;
  boost::system::error_code fault;
  char block[16384];
  while (!parser.is_done()) {
    const std::size_t got = socket.receive(block);
    if (socket.stopped()) return {parser.is_header_done() ? static_cast<int>(parser.get().result_int()) : 0, {}, true};
    if (got == 0) {
      parser.put_eof(fault);
      break;
    }
    held.append(block, got);
    while (!held.empty() && !parser.is_done()) {
      const std::size_t used = parser.put(boost::asio::buffer(held), fault);
      held.erase(0, used);
      if (fault || used == 0) break;
    }
    if (fault == http::error::need_more) fault = {};
    if (fault) break;
    std::string& body = parser.get().body();
    if (call.on_data && parser.is_header_done() && parser.get().result_int() == 200) {
      if (!body.empty()) call.on_data(std::exchange(body, {}));
    } else if (body_bytes = body.size(); body_bytes > kMostBytes || held.size() > kMostBytes) {
      fail(ErrorCode::resource_exhausted, "the answer of {}:{} is above {} bytes", call.host, call.port, kMostBytes);
    }
  }
  if (fault || !parser.is_done()) fail(ErrorCode::io, "the answer of {}:{} is not HTTP, or was cut off: {}", call.host, call.port, fault.message());
  return {static_cast<int>(parser.get().result_int()), std::move(parser.get().body()), false};
}

HttpAddress parse_http_address(const std::string& url, const std::string& name) {
  const auto refuse = [&](const char* why) {
    fail(ErrorCode::invalid_argument, "{} is '{}', {}; allowed is http://HOST:PORT or https://HOST:PORT", name, url.substr(0, 200), why);
  };
  HttpAddress address;
  std::string_view rest = url;
  if (rest.starts_with("https://")) address.tls = true, rest.remove_prefix(8);
  else if (rest.starts_with("http://")) rest.remove_prefix(7);
  else refuse("which is no http address");
  for (const char c : rest)
    if (static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 0x7f || c == '#' || c == '?' || c == '@')
      refuse("which has a character that does not belong there");
  std::string_view host = rest.substr(0, rest.find('/'));
  address.path = rest.substr(host.size());
  while (address.path.ends_with('/')) address.path.pop_back();
  std::string_view port;
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    if (end == std::string_view::npos) refuse("in which a bracket is not closed");
    port = host.substr(end + 1);
    if (!port.empty() && port.front() != ':') refuse("which has something behind the bracket");
    host = host.substr(1, end - 1);
  } else if (const std::size_t colon = host.find(':'); colon != std::string_view::npos) {
    port = host.substr(colon);
    host = host.substr(0, colon);
  }
  if (host.empty()) refuse("which names no host");
  address.host = host;
  address.port = address.tls ? 443 : 80;
  if (port.size() > 1) {
    const auto [end, fault] = std::from_chars(port.data() + 1, port.data() + port.size(), address.port);
    if (fault != std::errc() || end != port.data() + port.size() || address.port == 0) refuse("whose port is none");
  }
  return address;
}

HttpCall call_at(const HttpAddress& address, const std::string& method, const std::string& path, const std::string& key) {
  HttpCall call{.method = method, .host = address.host, .port = address.port, .path = address.path + path, .tls = address.tls};
  if (!key.empty()) call.headers.emplace_back("Authorization", "Bearer " + key);
  return call;
}

void EventReader::push(std::string_view bytes) {
  for (const char c : bytes) {
    const bool after_carriage = std::exchange(carriage_, c == '\r');
    if (c == '\n' && after_carriage) continue;
    if (c == '\n' || c == '\r') {
      end_line();
      continue;
    }
    line_ += c;
    if (line_.size() + data_.size() > kMostEventBytes) fail(ErrorCode::io, "an event of the stream is above {} bytes", kMostEventBytes);
  }
}

void EventReader::end_line() {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    const std::string data = std::exchange(data_, {});
    if (std::exchange(has_data_, false)) on_event_(data);
    return;
  }
  std::string_view text = line;
  if (!text.starts_with("data:")) return;
  text.remove_prefix(5);
  if (text.starts_with(' ')) text.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += text;
  has_data_ = true;
}

}  // namespace lockstep
