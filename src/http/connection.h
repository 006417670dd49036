// One connection: requests are read, bounded and parsed one after the other, answered through a Responder, and the client is
// watched while it waits. All on the thread of the server's io_context. Internal to http/.
#pragma once
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <unordered_set>

#include "http/server.h"

namespace lockstep {

class Connection;

// What the connections of a server share. The server owns the io_context, which outlives its connections; a responder may
// outlive all of them.
struct HttpShared {
  std::weak_ptr<boost::asio::io_context> io;
  std::shared_ptr<Api> api;
  HttpOptions options;
  std::unordered_set<std::shared_ptr<Connection>> connections;
  bool stopping = false;
};

class HttpResponder;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<HttpShared> shared, boost::asio::io_context& io, boost::asio::ip::tcp::socket socket);
  void start() { next_request(); }
  // The server stops: closes when idle, else with the end of the running answer.
  void drain();
  // Nobody waits for the running answer any more; what the Api makes of it is still sent.
  void abandon();
  void close();

  // For the responder of request number `request`; ignored when that is over.
  void send(std::uint64_t request, ApiResponse response);
  void begin_stream(std::uint64_t request, const std::string& content_type);
  void stream(std::uint64_t request, const std::string& data);
  void end_stream(std::uint64_t request);
  void dropped(std::uint64_t request);  // the responder went without an answer

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class Phase { idle, headers, body, answering, lingering, closed };

  void next_request();
  void read();
  void parse();
  void refuse(int status, std::string_view message);
  void refuse_fault(const boost::system::error_code& fault);
  void dispatch();
  void watch();
  std::string header_text(int status, std::string_view content_type, std::string_view length_lines,
                          const std::vector<std::pair<std::string, std::string>>& headers) const;
  void write(std::string data);
  void write_next();
  void finish_answer();
  void linger();
  void discard();
  void set_deadline(double seconds);  // 0: none
  void on_deadline();
  bool current(std::uint64_t request) const { return phase_ == Phase::answering && request == request_; }

  std::shared_ptr<HttpShared> shared_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  Phase phase_ = Phase::idle;
  std::uint64_t request_ = 0;
  std::weak_ptr<HttpResponder> responder_;
  bool keep_alive_ = true, head_ = false, http10_ = false, continued_ = false;
  bool streaming_ = false, ended_ = false, writing_ = false;
  std::string pending_, written_;
  std::size_t discarded_ = 0;
};

}  // namespace lockstep
