#include "http/transport.h"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

namespace lockstep {
namespace asio = boost::asio;
using boost::system::error_code;

bool socket_peer_is_local(const asio::ip::tcp::socket& socket) {
  boost::system::error_code gone, gone_here;
  const auto there = socket.remote_endpoint(gone), here = socket.local_endpoint(gone_here);
  return !gone && !gone_here && (there.address().is_loopback() || there.address() == here.address());
}

bool socket_peer_left(int descriptor) {
  pollfd entry{descriptor, POLLRDHUP, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

namespace {
class PlainTransport : public Transport {
 public:
  explicit PlainTransport(asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}
  void open(TransportUserPointer user) override { user->on_open({}); }
  void read(std::span<char> block, TransportUserPointer user) override {
    socket_.async_read_some(asio::buffer(block.data(), block.size()),
                            [user = std::move(user)](const error_code& fault, std::size_t bytes) { user->on_read(fault, bytes); });
  }
  bool write(std::string_view data, TransportUserPointer user) override {
    // Nearly always the system has room: one call, and no turn of the loop.
    const ssize_t sent = send(socket_.native_handle(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) data.remove_prefix(static_cast<std::size_t>(sent));
    if (data.empty()) return true;
    asio::async_write(socket_, asio::buffer(data.data(), data.size()),
                      [user = std::move(user)](const error_code& fault, std::size_t) { user->on_written(fault); });
    return false;
  }
  void end_writing(TransportUserPointer) override {
    error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }
  bool must_linger() override {
    char byte;
    return recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }
  bool peer_left() override { return socket_peer_left(socket_.native_handle()); }
  bool peer_is_local() override { return socket_peer_is_local(socket_); }
  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  asio::ip::tcp::socket socket_;
};
}  // namespace

std::unique_ptr<Transport> plain_transport(asio::ip::tcp::socket socket) { return std::make_unique<PlainTransport>(std::move(socket)); }

}  // namespace lockstep
