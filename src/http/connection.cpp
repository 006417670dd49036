#include "http/connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>
#include <ctime>
#include <mutex>

#include "base/log.h"

namespace lockstep {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {
constexpr std::size_t kReadBytes = 16 << 10;
constexpr std::size_t kMostDiscarded = 64 << 20;
constexpr double kLingerSeconds = 2;

std::string_view reason_of(int status) {
  return std::string_view(http::obsolete_reason(static_cast<http::status>(status)).data(),
                          http::obsolete_reason(static_cast<http::status>(status)).size());
}

std::string http_date() {
  constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  gmtime_r(&now, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", days[t.tm_wday], t.tm_mday, months[t.tm_mon], t.tm_year + 1900, t.tm_hour,
                     t.tm_min, t.tm_sec);
}
}  // namespace

// The Api's end of one request. Everything it is told goes to the connection's thread; it may outlive connection and server.
class HttpResponder : public Responder {
 public:
  HttpResponder(std::weak_ptr<asio::io_context> io, std::weak_ptr<Connection> connection, std::uint64_t request)
      : io_(std::move(io)), connection_(std::move(connection)), request_(request) {}
  ~HttpResponder() override {
    post([request = request_](Connection& c) { c.dropped(request); });
  }

  void send(ApiResponse response) override {
    end();
    post([request = request_, response = std::move(response)](Connection& c) mutable { c.send(request, std::move(response)); });
  }
  void begin_stream(std::string_view content_type) override {
    post([request = request_, type = std::string(content_type)](Connection& c) { c.begin_stream(request, type); });
  }
  void stream(std::string data) override {
    post([request = request_, data = std::move(data)](Connection& c) { c.stream(request, data); });
  }
  void end_stream() override {
    end();
    post([request = request_](Connection& c) { c.end_stream(request); });
  }
  void on_abandoned(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      if (!abandoned_) {
        callback_ = std::move(callback);
        return;
      }
    }
    callback();
  }
  void abandon() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      abandoned_ = true;
      callback.swap(callback_);
    }
    if (callback) callback();
  }

 private:
  template <class F>
  void post(F&& work) {
    const auto io = io_.lock();  // first: the connection goes before it
    if (!io) return;
    if (auto connection = connection_.lock())
      asio::post(*io, [connection = std::move(connection), work = std::forward<F>(work)]() mutable { work(*connection); });
  }
  void end() {
    std::function<void()> callback;
    const std::lock_guard lock(mutex_);
    ended_ = true;
    callback.swap(callback_);
  }
  std::weak_ptr<asio::io_context> io_;
  std::weak_ptr<Connection> connection_;
  std::uint64_t request_;
  std::mutex mutex_;
  std::function<void()> callback_;
  bool abandoned_ = false, ended_ = false;
};

Connection::Connection(std::shared_ptr<HttpShared> shared, asio::io_context& io, asio::ip::tcp::socket socket)
    : shared_(std::move(shared)), socket_(std::move(socket)), timer_(io) {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
}

void Connection::next_request() {
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(shared_->options.max_header_bytes));
  parser_->body_limit(shared_->options.max_body_bytes);
  parser_->eager(true);
  phase_ = Phase::idle;
  keep_alive_ = true;
  head_ = http10_ = continued_ = streaming_ = ended_ = false;
  set_deadline(shared_->options.idle_seconds);
  if (buffer_.size() > 0) return parse();  // sent ahead
  if (shared_->stopping) return close();
  read();
}

void Connection::read() {
  auto self = shared_from_this();
  socket_.async_read_some(buffer_.prepare(kReadBytes), [this, self](const error_code& fault, std::size_t bytes) {
    if (phase_ != Phase::idle && phase_ != Phase::headers && phase_ != Phase::body) return;
    if (fault) return close();  // between requests or within one: nobody is left to be told
    buffer_.commit(bytes);
    parse();
  });
}

void Connection::parse() {
  if (phase_ == Phase::idle) {
    phase_ = Phase::headers;
    set_deadline(shared_->options.header_seconds);
  }
  error_code fault;
  while (buffer_.size() > 0 && !parser_->is_done()) {
    const std::size_t used = parser_->put(buffer_.data(), fault);
    buffer_.consume(used);
    if (fault == http::error::need_more) {
      fault = {};
      break;
    }
    if (fault) return refuse_fault(fault);
    if (used == 0) break;
  }
  if (parser_->is_done()) return dispatch();
  if (parser_->is_header_done() && phase_ == Phase::headers) {
    phase_ = Phase::body;
    set_deadline(shared_->options.body_seconds);
    if (!continued_ && boost::beast::iequals(parser_->get()[http::field::expect], "100-continue")) write("HTTP/1.1 100 Continue\r\n\r\n");
    continued_ = true;
  }
  read();
}

void Connection::refuse_fault(const error_code& fault) {
  const HttpOptions& o = shared_->options;
  if (fault == http::error::header_limit) return refuse(431, fmt::format("the request's headers are above {} bytes", o.max_header_bytes));
  if (fault == http::error::body_limit) return refuse(413, fmt::format("the body is above {} bytes", o.max_body_bytes));
  refuse(400, fmt::format("not an HTTP request: {}", fault.message()));
}

// An answer of our own to a request that cannot be read to its end.
void Connection::refuse(int status, std::string_view message) {
  phase_ = Phase::answering;
  ++request_;
  keep_alive_ = false;
  send(request_, shared_->api->error_response(status, message));
}

void Connection::dispatch() {
  const auto& message = parser_->get();
  ApiRequest request;
  request.method = std::string(message.method_string().data(), message.method_string().size());
  const std::string_view target(message.target().data(), message.target().size());
  request.path = target.substr(0, target.find('?'));
  if (request.path.size() < target.size()) request.query = target.substr(request.path.size() + 1);
  const auto type = message[http::field::content_type];
  request.content_type = std::string(type.data(), type.size());
  for (const auto& field : message) {
    std::string name(field.name_string().data(), field.name_string().size());
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    request.headers.emplace_back(std::move(name), std::string(field.value().data(), field.value().size()));
  }
  keep_alive_ = message.keep_alive();
  http10_ = message.version() < 11;
  head_ = message.method() == http::verb::head;
  request.body = std::move(parser_->get().body());
  if (!http10_ && message.count(http::field::host) != 1) return refuse(400, "a request of HTTP/1.1 has one Host header");

  phase_ = Phase::answering;
  const auto responder = std::make_shared<HttpResponder>(shared_->io, weak_from_this(), ++request_);
  responder_ = responder;
  set_deadline(0);
  watch();
  shared_->api->handle(std::move(request), responder);
}

// Tells when the client goes away while it waits. Bytes that it sends ahead end the watch: they lie before its end.
void Connection::watch() {
  auto self = shared_from_this();
  socket_.async_wait(asio::ip::tcp::socket::wait_read, [this, self, request = request_](const error_code& fault) {
    if (fault || !current(request)) return;
    char byte;
    const ssize_t got = recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) return;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return watch();
    log_debug("a client left before its answer");
    abandon();
    close();
  });
}

void Connection::drain() {
  if (phase_ == Phase::idle) close();
}

void Connection::abandon() {
  if (const auto responder = responder_.lock()) responder->abandon();
}

void Connection::close() {
  if (phase_ == Phase::closed) return;
  phase_ = Phase::closed;
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
  shared_->connections.erase(shared_from_this());
}

std::string Connection::header_text(int status, std::string_view content_type, std::string_view length_lines,
                                    const std::vector<std::pair<std::string, std::string>>& headers) const {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: lockstep\r\nDate: {}\r\nContent-Type: {}\r\n{}", status, reason_of(status),
                                 http_date(), content_type, length_lines);
  for (const auto& [name, value] : headers) text += fmt::format("{}: {}\r\n", name, value);
  text += keep_alive_ ? (http10_ ? "Connection: keep-alive\r\n\r\n" : "\r\n") : "Connection: close\r\n\r\n";
  return text;
}

void Connection::send(std::uint64_t request, ApiResponse response) {
  if (!current(request) || streaming_ || ended_) return;
  if (shared_->stopping) keep_alive_ = false;
  std::string text = header_text(response.status, response.content_type, fmt::format("Content-Length: {}\r\n", response.body.size()),
                                 response.headers);
  if (!head_) text += response.body;
  ended_ = true;
  write(std::move(text));
}

void Connection::begin_stream(std::uint64_t request, const std::string& content_type) {
  if (!current(request) || streaming_ || ended_) return;
  streaming_ = true;
  if (http10_ || shared_->stopping) keep_alive_ = false;  // without chunks the end of the connection ends the answer
  write(header_text(200, content_type, http10_ ? "" : "Transfer-Encoding: chunked\r\n", {{"Cache-Control", "no-cache"}}));
}

void Connection::stream(std::uint64_t request, const std::string& data) {
  if (!current(request) || !streaming_ || ended_ || data.empty()) return;
  if (pending_.size() > shared_->options.max_pending_bytes) {
    log_warning("a client does not read its stream; it is closed", {{"pending_bytes", pending_.size()}});
    abandon();
    return close();
  }
  write(http10_ ? data : fmt::format("{:x}\r\n{}\r\n", data.size(), data));
}

void Connection::end_stream(std::uint64_t request) {
  if (!current(request) || !streaming_ || ended_) return;
  ended_ = true;
  write(http10_ ? "" : "0\r\n\r\n");
}

void Connection::dropped(std::uint64_t request) {
  if (!current(request) || ended_) return;
  if (!streaming_) return send(request, shared_->api->error_response(500, "the request was dropped without an answer"));
  close();
}

void Connection::write(std::string data) {
  pending_ += data;
  if (!writing_) write_next();
}

void Connection::write_next() {
  if (phase_ == Phase::closed) return;
  if (pending_.empty()) {
    if (ended_) finish_answer();
    return;
  }
  written_.clear();
  written_.swap(pending_);
  writing_ = true;
  const bool own_deadline = phase_ == Phase::answering;
  if (own_deadline) set_deadline(shared_->options.write_seconds);
  auto self = shared_from_this();
  asio::async_write(socket_, asio::buffer(written_), [this, self, own_deadline](const error_code& fault, std::size_t) {
    writing_ = false;
    if (phase_ == Phase::closed) return;
    if (own_deadline) set_deadline(0);
    if (!fault) return write_next();
    abandon();
    close();
  });
}

void Connection::finish_answer() {
  if (keep_alive_ && !shared_->stopping) return next_request();
  char byte;
  const bool unread = buffer_.size() > 0 || recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  if (unread || !parser_->is_done()) return linger();
  close();
}

// The answer is out. A close with unread bytes of the client's would take it back from the wire, so they are read first.
void Connection::linger() {
  phase_ = Phase::lingering;
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  set_deadline(kLingerSeconds);
  discard();
}

void Connection::discard() {
  auto self = shared_from_this();
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(kReadBytes), [this, self](const error_code& fault, std::size_t bytes) {
    if (phase_ != Phase::lingering) return;
    discarded_ += bytes;
    if (fault || discarded_ > kMostDiscarded) return close();
    discard();
  });
}

void Connection::set_deadline(double seconds) {
  if (seconds <= 0) {
    timer_.expires_at(std::chrono::steady_clock::time_point::max());  // also what on_deadline would ask
    return;
  }
  timer_.expires_after(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)));
  auto self = shared_from_this();
  timer_.async_wait([this, self](const error_code& fault) {
    // A wait that was replaced may have been on its way already: the timer knows.
    if (!fault && timer_.expiry() <= std::chrono::steady_clock::now()) on_deadline();
  });
}

void Connection::on_deadline() {
  if (phase_ == Phase::headers || phase_ == Phase::body) {
    const char* part = phase_ == Phase::headers ? "headers" : "body";
    const double seconds = phase_ == Phase::headers ? shared_->options.header_seconds : shared_->options.body_seconds;
    return refuse(408, fmt::format("the request's {} did not arrive within {} seconds", part, seconds));
  }
  if (phase_ == Phase::answering) {
    log_debug("a client takes no bytes; it is closed");
    abandon();
  }
  close();
}

}  // namespace lockstep
