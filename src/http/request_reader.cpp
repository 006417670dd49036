#include "http/request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/ascii.h"
#include "base/entropy.h"
#include "base/hash.h"

namespace lockstep {
namespace http = boost::beast::http;

namespace {
constexpr std::size_t kMostRequestId = 128;
constexpr std::size_t kKeptInput = 64 << 10;  // the memory of a longer input is freed once all of it is taken
constexpr std::string_view kLastChunk = "0\r\n\r\n";

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }
bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
}  // namespace

struct RequestReader::Parser : http::request_parser<http::string_body> {};

RequestReader::RequestReader(const HttpLimits& limits) : limits_(limits), parser_(std::make_unique<Parser>()) {
  parser_->header_limit(static_cast<std::uint32_t>(limits.max_header_bytes));
  parser_->body_limit(limits.max_body_bytes);
}
RequestReader::~RequestReader() = default;

void RequestReader::refuse(int status, std::string message) {
  state_ = State::refused;
  status_ = status;
  message_ = std::move(message);
}

void RequestReader::take(std::string& input) {
  const std::size_t used = feed(input);
  if (used == input.size()) input.clear();
  else input.erase(0, used);
  if (input.empty() && input.capacity() > kKeptInput) input.shrink_to_fit();
}

std::size_t RequestReader::feed(std::string_view bytes) {
  std::size_t taken = 0;
  while (taken < bytes.size() && (state_ == State::headers || state_ == State::body)) {
    // Beast 1.81 asserts on a last chunk that it sees again with four bytes; fewer than five end nothing.
    if (const std::string_view rest = bytes.substr(taken);
        state_ == State::body && parser_->chunked() && rest.size() >= 3 && rest.size() < kLastChunk.size() && rest.substr(0, 3) == kLastChunk.substr(0, 3))
      break;
    boost::system::error_code fault;
    const std::size_t used = parser_->put(boost::asio::buffer(bytes.data() + taken, bytes.size() - taken), fault);
    taken += used;
    if (fault == http::error::header_limit) refuse(431, fmt::format("the request's headers are above {} bytes", limits_.max_header_bytes));
    else if (fault == http::error::body_limit) refuse(413, fmt::format("the body is above {} bytes", limits_.max_body_bytes));
    else if (fault && fault != http::error::need_more) refuse(400, fmt::format("not an HTTP request: {}", fault.message()));
    else if (state_ == State::body && fault && bytes.size() - taken > limits_.max_header_bytes)  // of one chunk's header, or of the trailers
      refuse(431, fmt::format("a chunk's header or the trailers are above {} bytes", limits_.max_header_bytes));
    if (state_ == State::refused) return taken;
    if (state_ == State::headers) head_bytes_ += used;
    if (state_ == State::headers && parser_->is_header_done()) {
      state_ = State::body;
      read_head();  // before any of the body
      parser_->eager(true);
      if (state_ == State::body && parser_->is_done()) state_ = State::done;  // it has none
      break;
    }
    if (state_ == State::body && parser_->is_done()) {
      request_.body = std::move(parser_->get().body());
      state_ = State::done;
    }
    if (fault || used == 0) break;
  }
  return taken;
}

std::size_t RequestReader::body_bytes() const {
  const auto length = parser_->content_length();
  return std::max<std::size_t>(length ? static_cast<std::size_t>(*length) : 0, parser_->get().body().capacity());
}

void RequestReader::read_head() {
  if (head_bytes_ > limits_.max_header_bytes) return refuse(431, fmt::format("the request's headers are above {} bytes", limits_.max_header_bytes));
  const auto& message = parser_->get();
  request_.method = std::string(view(message.method_string()));
  http10_ = message.version() < 11;
  keep_alive_ = message.keep_alive();
  std::size_t hosts = 0;
  for (const auto& field : message) {
    if (request_.headers.size() == limits_.max_headers) return refuse(431, fmt::format("the request has more than {} headers", limits_.max_headers));
    request_.headers.emplace_back(ascii_lower(view(field.name_string())), std::string(view(field.value())));
    hosts += request_.headers.back().first == "host";
  }
  request_.content_type = request_.header("content-type");
  const std::string_view id = request_.header("x-request-id");
  request_.request_id = is_request_id(id) ? std::string(id) : new_request_id();
  if (hosts != 1 && (!http10_ || hosts > 1)) return refuse(400, "a request of HTTP/1.1 has one Host header");
  read_target(view(message.target()));
  if (state_ != State::refused) read_framing();
}

void RequestReader::read_target(std::string_view target) {
  if (target.size() > limits_.max_target_bytes) return refuse(414, fmt::format("the request's target is above {} bytes", limits_.max_target_bytes));
  for (const char c : target)
    if (c <= ' ' || c >= 0x7f || c == '#') return refuse(400, "the request's target has a character that is not allowed there; it is percent-encoded in a URL");
  if (const std::string start = ascii_lower(target.substr(0, 8)); start.starts_with("http://") || start == "https://") {  // as a proxy is asked
    const std::size_t slash = target.find_first_of("/?", start.find("//") + 2);
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  if (!target.starts_with('/') && !(target == "*" && request_.method == "OPTIONS"))
    return refuse(400, "the request's target is no path; it begins with a slash");
  const std::size_t mark = std::min(target.find('?'), target.size());
  request_.path = target.substr(0, mark);
  if (mark < target.size()) request_.query = target.substr(mark + 1);
}

void RequestReader::read_framing() {
  std::size_t lengths = 0, encodings = 0;
  for (const auto& [name, value] : request_.headers) {
    if (name == "content-length") {
      ++lengths;
      if (value.empty() || value.find_first_not_of("0123456789") != std::string::npos) return refuse(400, "content-length is not a number");
    } else if (name == "transfer-encoding") {
      ++encodings;
      if (ascii_lower(value) != "chunked") return refuse(501, "transfer-encoding is not chunked, and no other is offered");
    } else if (name == "expect") {
      if (ascii_lower(value) != "100-continue") return refuse(417, "expect is not 100-continue, and nothing else can be expected");
      expects_continue_ = !http10_;
    }
  }
  if (lengths > 1 || encodings > 1 || lengths + encodings > 1) return refuse(400, "the request says twice how long its body is");
  if (encodings > 0 && http10_) return refuse(400, "a request of HTTP/1.0 has no transfer-encoding");
}

bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= kMostRequestId &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.' || c == ':'; });
}

std::string new_request_id() {
  static const std::uint64_t first = random_bits();
  static std::atomic<std::uint64_t> count{0};
  // The count, scrambled one to one (an odd factor and a xor): unlike its neighbours, and never the same twice.
  return "req-" + hex64((first ^ count.fetch_add(1, std::memory_order_relaxed)) * 0x9E3779B97F4A7C15u);
}

}  // namespace lockstep
