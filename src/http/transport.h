// Reads and writes the bytes of one connection, plain or TLS. At most one read and one write at a time.
// All on the thread of the server's io_context. Internal to http/.
//   transport->read(block, user);  ...  user->on_read(fault, bytes);
#pragma once
#include <utility>  // before asio: g++ 12 wants std::exchange there

#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// The owner of a transport, which calls it when an operation has ended; it is kept alive until then.
class TransportUser {
 public:
  virtual ~TransportUser() = default;
  virtual void on_open(const boost::system::error_code& fault) = 0;
  virtual void on_read(const boost::system::error_code& fault, std::size_t bytes) = 0;
  virtual void on_written(const boost::system::error_code& fault) = 0;
};
using TransportUserPointer = std::shared_ptr<TransportUser>;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual void open(TransportUserPointer user) = 0;
  // Reads one or more bytes into `block`, which must stay valid until on_read.
  virtual void read(std::span<char> block, TransportUserPointer user) = 0;
  // Writes all of `data`, which must stay valid until on_written. True: the system has taken it already, and on_written is not called.
  virtual bool write(std::string_view data, TransportUserPointer user) = 0;
  // Shuts down writing: the other side sees the end.
  virtual void end_writing(TransportUserPointer user) = 0;
  // Whether a close now could lose bytes that were written: input is unread (the system would reset the connection), or TLS's close_notify is due.
  virtual bool must_linger() = 0;
  // Whether the other side has closed, even where bytes that it sent before are unread.
  virtual bool peer_left() = 0;
  // Whether the other side is a program on this machine, which may be a proxy for others.
  virtual bool peer_is_local() = 0;
  virtual void close() = 0;
};

std::unique_ptr<Transport> plain_transport(boost::asio::ip::tcp::socket socket);

// A server's certificate and key, for TLS 1.2 and later. Any thread.
class TlsContext;
// Errors: io (a file that cannot be read), invalid_argument (no certificate or key in it, or they do not belong together).
std::shared_ptr<TlsContext> load_tls_context(const std::string& certificate_file, const std::string& key_file);
std::unique_ptr<Transport> tls_transport(const std::shared_ptr<TlsContext>& context, boost::asio::ip::tcp::socket socket);

// peer_left() and peer_is_local() of both transports, asked of the system.
bool socket_peer_left(int descriptor);
bool socket_peer_is_local(const boost::asio::ip::tcp::socket& socket);

}  // namespace lockstep
