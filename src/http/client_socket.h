// A client's connection, plain or TLS with its certificate checked, for one request after another.
//   ClientSocket socket({.host = "example.com", .port = 443, .tls = true}, [&] { return stop; });  // polled while it waits
//   socket.send(request); const std::size_t count = socket.receive(block);  // the first `count` bytes of block; 0: no more follow
// Calls block, and end early once the function given returns true. One thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

struct ClientTarget {
  std::string host;  // a name or an address
  std::uint16_t port = 0;
  bool tls = false;
  double timeout_seconds = 60;  // of connecting, and of each wait
};

class ClientSocket {
 public:
  // Connects. Errors: io. `stop` may be empty; once it returns true, this and all later calls return at once, and stopped() is true.
  ClientSocket(const ClientTarget& target, std::function<bool()> stop);
  ~ClientSocket();
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  bool stopped() const { return stopped_; }
  // False: stopped. Errors: io.
  bool send(std::string_view data);
  // Waits for bytes and returns how many were put into `block`; 0: the server has ended its side, or stopped(). Errors: io.
  std::size_t receive(std::span<char> block);

 private:
  struct Tls;
  bool connect_to(int family, int protocol, const void* address, unsigned size);
  void begin_tls();
  bool wait(short events, const char* what);  // false: stopped
  [[noreturn]] void refuse(const char* what, const std::string& why) const;
  void close();

  ClientTarget target_;
  std::function<bool()> stop_;
  int descriptor_ = -1;
  bool stopped_ = false;
  std::unique_ptr<Tls> tls_;
};

}  // namespace lockstep
