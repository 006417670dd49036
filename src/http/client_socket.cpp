#include "http/client_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"

namespace lockstep {
namespace {
constexpr int kSliceMilliseconds = 50;

std::string tls_reason(SSL* ssl) {
  if (const long verified = ssl ? SSL_get_verify_result(ssl) : X509_V_OK; verified != X509_V_OK)
    return fmt::format("its certificate is refused: {} (SSL_CERT_FILE names other authorities)", X509_verify_cert_error_string(verified));
  const unsigned long code = ERR_peek_last_error();
  const char* text = code ? ERR_reason_error_string(code) : nullptr;
  return text ? text : "the connection broke";
}
}  // namespace

struct ClientSocket::Tls {
  SSL_CTX* context = nullptr;
  SSL* ssl = nullptr;
  ~Tls() {
    SSL_free(ssl);
    SSL_CTX_free(context);
    ERR_clear_error();
  }
};

ClientSocket::ClientSocket(const ClientTarget& target, std::function<bool()> stop) : target_(target), stop_(std::move(stop)) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int fault = getaddrinfo(target.host.c_str(), std::to_string(target.port).c_str(), &wanted, &found); fault != 0) refuse("find", gai_strerror(fault));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  int problem = 0;
  for (const addrinfo* one = all.get(); one != nullptr && descriptor_ < 0 && !stopped_; one = one->ai_next)
    if (!connect_to(one->ai_family, one->ai_protocol, one->ai_addr, one->ai_addrlen)) problem = errno;
  if (stopped_) return;
  if (descriptor_ < 0) refuse("connect to", std::strerror(problem));
  try {
    if (target_.tls) begin_tls();
  } catch (...) {
    close();
    throw;
  }
}

ClientSocket::~ClientSocket() {
  if (tls_ && !stopped_) SSL_shutdown(tls_->ssl);
  close();
}

void ClientSocket::close() {
  tls_.reset();
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void ClientSocket::refuse(const char* what, const std::string& why) const { fail(ErrorCode::io, "cannot {} {}:{}: {}", what, target_.host, target_.port, why); }

bool ClientSocket::connect_to(int family, int protocol, const void* address, unsigned size) {
  descriptor_ = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
  if (descriptor_ < 0) return false;
  const int yes = 1;
  setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  int fault = ::connect(descriptor_, static_cast<const sockaddr*>(address), size) == 0 ? 0 : errno;
  if (fault == EINPROGRESS || fault == EINTR) {
    if (!wait(POLLOUT, "connect to")) return true;
    socklen_t bytes = sizeof fault;
    getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &fault, &bytes);
  }
  if (fault == 0) return true;
  ::close(descriptor_);
  descriptor_ = -1;
  errno = fault;
  return false;
}

void ClientSocket::begin_tls() {
  ERR_clear_error();
  tls_ = std::make_unique<Tls>();
  tls_->context = SSL_CTX_new(TLS_client_method());
  if (!tls_->context || !SSL_CTX_set_default_verify_paths(tls_->context) || !SSL_CTX_set_min_proto_version(tls_->context, TLS1_2_VERSION))
    refuse("speak TLS with", tls_reason(nullptr));
  SSL_CTX_set_verify(tls_->context, SSL_VERIFY_PEER, nullptr);
  tls_->ssl = SSL_new(tls_->context);
  if (!tls_->ssl || !SSL_set_fd(tls_->ssl, descriptor_)) refuse("speak TLS with", tls_reason(nullptr));
  in6_addr address{};
  const bool is_address = inet_pton(AF_INET, target_.host.c_str(), &address) == 1 || inet_pton(AF_INET6, target_.host.c_str(), &address) == 1;
  if (is_address) X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_->ssl), target_.host.c_str());
  else if (!SSL_set1_host(tls_->ssl, target_.host.c_str()) || !SSL_set_tlsext_host_name(tls_->ssl, target_.host.c_str()))
    refuse("speak TLS with", tls_reason(nullptr));
  while (!stopped_) {
    const int done = SSL_connect(tls_->ssl);
    if (done == 1) return;
    const int error = SSL_get_error(tls_->ssl, done);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) refuse("speak TLS with", tls_reason(tls_->ssl));
    wait(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, "speak TLS with");
  }
}

bool ClientSocket::wait(short events, const char* what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(target_.timeout_seconds);
  while (true) {
    if (stop_ && stop_()) stopped_ = true;
    if (stopped_) return false;
    if (std::chrono::steady_clock::now() > end) refuse(what, "no answer in time");
    pollfd one{descriptor_, events, 0};
    if (poll(&one, 1, kSliceMilliseconds) > 0) return true;
  }
}

bool ClientSocket::send(std::string_view data) {
  while (!data.empty()) {
    if (stopped_) return false;
    if (tls_) {
      ERR_clear_error();
      const int sent = SSL_write(tls_->ssl, data.data(), static_cast<int>(std::min<std::size_t>(data.size(), 1 << 20)));
      if (sent > 0) {
        data.remove_prefix(static_cast<std::size_t>(sent));
        continue;
      }
      const int error = SSL_get_error(tls_->ssl, sent);
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) refuse("send to", tls_reason(tls_->ssl));
      wait(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, "send to");
      continue;
    }
    const ssize_t sent = ::send(descriptor_, data.data(), data.size(), MSG_NOSIGNAL);
    if (sent >= 0) data.remove_prefix(static_cast<std::size_t>(sent));
    else if (errno == EAGAIN || errno == EWOULDBLOCK) wait(POLLOUT, "send to");
    else if (errno != EINTR) refuse("send to", std::strerror(errno));
  }
  return !stopped_;
}

std::size_t ClientSocket::receive(std::span<char> block) {
  while (!stopped_) {
    if (tls_) {
      ERR_clear_error();
      const int got = SSL_read(tls_->ssl, block.data(), static_cast<int>(block.size()));
      if (got > 0) return static_cast<std::size_t>(got);
      const int error = SSL_get_error(tls_->ssl, got);
      if (error == SSL_ERROR_ZERO_RETURN) return 0;
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) refuse("hear from", tls_reason(tls_->ssl));
      wait(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, "hear from");
      continue;
    }
    const ssize_t got = recv(descriptor_, block.data(), block.size(), 0);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EAGAIN || errno == EWOULDBLOCK) wait(POLLIN, "hear from");
    else if (errno != EINTR) refuse("hear from", std::strerror(errno));
  }
  return 0;
}

}  // namespace lockstep
