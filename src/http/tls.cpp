// Transport under TLS, by OpenSSL through asio. The one file that includes asio's ssl.
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include "base/error.h"
#include "http/transport.h"

namespace lockstep {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class TlsContext {
 public:
  asio::ssl::context context{asio::ssl::context::tls_server};
};

namespace {
// Chooses HTTP/1.1 among the protocols that a client offers (ALPN); one that does not offer it gets no answer, and may speak HTTP/1.1 all the same.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* length, const unsigned char* offered, unsigned int bytes, void*) {
  constexpr std::string_view kHttp = "http/1.1";
  for (unsigned int i = 0; i < bytes; i += 1u + offered[i]) {
    if (i + 1u + offered[i] > bytes) break;
    if (std::string_view(reinterpret_cast<const char*>(offered + i + 1), offered[i]) != kHttp) continue;
    *chosen = offered + i + 1;
    *length = offered[i];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_NOACK;
}

class TlsTransport : public Transport {
 public:
  TlsTransport(std::shared_ptr<TlsContext> context, tcp::socket socket) : context_(std::move(context)), stream_(std::move(socket), context_->context) {}
  void open(TransportUserPointer user) override {
    stream_.async_handshake(asio::ssl::stream_base::server, [this, user = std::move(user)](const error_code& fault) {
      if (fault && fault.category() == asio::error::get_ssl_category() && ERR_GET_REASON(static_cast<unsigned long>(fault.value())) == SSL_R_HTTP_REQUEST) {
        constexpr std::string_view kPlain =
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 38\r\nConnection: close\r\n\r\nthis port speaks https, and heard http";
        error_code ignored;
        stream_.next_layer().non_blocking(true, ignored);
        stream_.next_layer().write_some(asio::buffer(kPlain), ignored);
      }
      user->on_open(fault);
    });
  }
  void read(std::span<char> block, TransportUserPointer user) override {
    stream_.async_read_some(asio::buffer(block.data(), block.size()),
                            [user = std::move(user)](const error_code& fault, std::size_t bytes) { user->on_read(fault, bytes); });
  }
  bool write(std::string_view data, TransportUserPointer user) override {
    asio::async_write(stream_, asio::buffer(data.data(), data.size()),
                      [user = std::move(user)](const error_code& fault, std::size_t) { user->on_written(fault); });
    return false;
  }
  void end_writing(TransportUserPointer user) override {
    // TLS's close_notify, by which the other side can tell an end from a cut.
    stream_.async_shutdown([user = std::move(user)](const error_code&) {});
  }
  bool must_linger() override { return true; }
  bool peer_left() override { return socket_peer_left(stream_.next_layer().native_handle()); }
  bool peer_is_local() override { return socket_peer_is_local(stream_.next_layer()); }
  void close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  std::shared_ptr<TlsContext> context_;
  asio::ssl::stream<tcp::socket> stream_;
};
}  // namespace

std::shared_ptr<TlsContext> load_tls_context(const std::string& certificate_file, const std::string& key_file) {
  auto loaded = std::make_shared<TlsContext>();
  SSL_CTX* native = loaded->context.native_handle();
  ERR_clear_error();
  // OpenSSL's messages name a file's path and never its content.
  const auto reason = [] {
    const unsigned long code = ERR_get_error();
    const char* text = ERR_reason_error_string(code);
    ERR_clear_error();
    return std::string(text ? text : "unknown");
  };
  const auto require_readable = [](const char* what, const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (!file) fail(ErrorCode::io, "cannot read the {} {}", what, path);
    std::fclose(file);
  };
  require_readable("tls certificate", certificate_file);
  require_readable("tls key", key_file);
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(native, choose_protocol, nullptr);
  // Without a callback a key with a passphrase would ask for it on the terminal.
  SSL_CTX_set_default_passwd_cb(native, [](char*, int, int, void*) { return 0; });
  if (SSL_CTX_use_certificate_chain_file(native, certificate_file.c_str()) != 1)
    fail(ErrorCode::invalid_argument, "tls-certificate is {}, which is no certificate chain in PEM: {}", certificate_file, reason());
  if (SSL_CTX_use_PrivateKey_file(native, key_file.c_str(), SSL_FILETYPE_PEM) != 1)
    fail(ErrorCode::invalid_argument, "tls-key is {}, which is no private key in PEM without a passphrase that belongs to the certificate: {}", key_file,
         reason());
  if (SSL_CTX_check_private_key(native) != 1) fail(ErrorCode::invalid_argument, "tls-key {} does not belong to the certificate {}", key_file, certificate_file);
  return loaded;
}

std::unique_ptr<Transport> tls_transport(const std::shared_ptr<TlsContext>& context, tcp::socket socket) {
  return std::make_unique<TlsTransport>(context, std::move(socket));
}

}  // namespace lockstep
