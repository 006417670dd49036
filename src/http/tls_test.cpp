#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <filesystem>

#include "http/http_test_tools.h"

namespace lockstep {
namespace {

// A certificate of its own and its key, as files.
struct Identity {
  explicit Identity(const std::string& name) : certificate(path(name + "-certificate.pem")), key(path(name + "-key.pem")) {
    EVP_PKEY* pair = EVP_EC_gen("P-256");
    X509* x = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), 0);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, pair);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    X509_sign(x, pair, EVP_sha256());
    std::FILE* file = std::fopen(certificate.c_str(), "w");
    PEM_write_X509(file, x);
    std::fclose(file);
    file = std::fopen(key.c_str(), "w");
    PEM_write_PrivateKey(file, pair, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    X509_free(x);
    EVP_PKEY_free(pair);
  }
  ~Identity() {
    std::filesystem::remove(certificate);
    std::filesystem::remove(key);
  }
  static std::string path(const std::string& name) { return testing::TempDir() + "lockstep-" + std::to_string(getpid()) + "-" + name; }
  std::string certificate, key;
};

class TlsClient {
 public:
  TlsClient(std::uint16_t port, int highest) : socket_(port), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_min_proto_version(context_, TLS1_VERSION);
    SSL_CTX_set_security_level(context_, 0);
    SSL_CTX_set_max_proto_version(context_, highest);
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, socket_.descriptor());
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    ERR_clear_error();
  }
  bool connect() { return SSL_connect(ssl_) == 1; }
  std::string version() const { return SSL_get_version(ssl_); }
  bool compresses() const { return SSL_get_current_compression(ssl_) != nullptr; }
  bool negotiates_anew() { return SSL_renegotiate(ssl_) == 1 && SSL_do_handshake(ssl_) == 1; }
  bool say(std::string_view text) { return SSL_write(ssl_, text.data(), static_cast<int>(text.size())) == static_cast<int>(text.size()); }
  std::string hear(std::string_view end = {}) {
    std::string text;
    char block[4096];
    while (end.empty() || text.find(end) == std::string::npos) {
      const int got = SSL_read(ssl_, block, sizeof block);
      if (got <= 0) {
        goodbye_ = SSL_get_error(ssl_, got) == SSL_ERROR_ZERO_RETURN;
        break;
      }
      text.append(block, static_cast<std::size_t>(got));
    }
    return text;
  }
  bool goodbye() const { return goodbye_; }
  RawSocket& socket() { return socket_; }

 private:
  RawSocket socket_;
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  bool goodbye_ = false;
};

class Tls : public HttpTest {
 protected:
  void serve_tls(HttpOptions options = {}) {
    options.tls_certificate = identity_.certificate;
    options.tls_key = identity_.key;
    serve(options);
  }
  Identity identity_{"server"};
};

TEST_F(Tls, AnswersStreamsAndSaysGoodbye) {
  serve_tls();
  EXPECT_TRUE(server_->url().starts_with("https://127.0.0.1:"));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server_->port(), version);
    ASSERT_TRUE(client.connect());
    EXPECT_EQ(client.version(), version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(client.say(fmt::format("POST /echo?{} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", i)));
      EXPECT_NE(client.hear(fmt::format("POST|{}|abc", i)).find("200 OK"), std::string::npos);
    }
    ASSERT_TRUE(client.say("GET /large HTTP/1.1\r\nHost: x\r\n\r\n"));
    EXPECT_TRUE(client.hear(std::string(3 << 20, 'L')).ends_with("LLL"));
    ASSERT_TRUE(client.say("GET /echo?p HTTP/1.1\r\nHost: x\r\n\r\nGET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    const std::string last = client.hear();
    EXPECT_NE(last.find("GET|p|"), std::string::npos);
    EXPECT_TRUE(last.ends_with("part 2\n\r\n0\r\n\r\n"));
    EXPECT_TRUE(client.goodbye());  // an end, not a cut
  }
}

TEST_F(Tls, OldProtocolsPlainHttpAndNonsenseAreTurnedAway) {
  serve_tls({.handshake_seconds = 0.3});
  TlsClient old(server_->port(), TLS1_1_VERSION);
  EXPECT_FALSE(old.connect());
  const std::string plain = raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(plain.starts_with("HTTP/1.1 400 ")) << plain;
  EXPECT_TRUE(plain.ends_with("this port speaks https, and heard http"));
  raw(std::string(1000, '\x16'));
  raw("");                                          // silence: the handshake's deadline
  raw(std::string("\x16\x03\x01\x02\x00\x01", 6));  // the beginning of a hello
  for (int i = 0; i < 1000 && state_->connections > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(state_->connections, 0);
  EXPECT_EQ(api_->requests, 0);
  bool connects = false;
  for (int i = 0; i < 20 && !connects; ++i) connects = TlsClient(server_->port(), TLS1_3_VERSION).connect();  // a busy machine may be late for that deadline
  EXPECT_TRUE(connects);
}

// What TLS 1.2 still has.
TEST_F(Tls, NothingIsNegotiatedAnewAndNothingCompressed) {
  serve_tls();
  TlsClient client(server_->port(), TLS1_2_VERSION);
  ASSERT_TRUE(client.connect());
  EXPECT_FALSE(client.compresses());
  EXPECT_FALSE(client.negotiates_anew());
}

TEST_F(Tls, AClientThatIsCutOffIsNoticed) {
  serve_tls();
  TlsClient client(server_->port(), TLS1_3_VERSION);
  ASSERT_TRUE(client.connect());
  ASSERT_TRUE(client.say("GET /held HTTP/1.1\r\nHost: x\r\n\r\n"));
  const auto responder = api_->take();
  client.socket().close();
  EXPECT_TRUE(abandoned_within_seconds(1));
}

TEST_F(Tls, StopLetsARunningRequestFinish) {
  serve_tls({.stop_seconds = 20});
  TlsClient client(server_->port(), TLS1_3_VERSION);
  ASSERT_TRUE(client.connect());
  ASSERT_TRUE(client.say("GET /held HTTP/1.1\r\nHost: x\r\n\r\n"));
  const auto responder = api_->take();
  std::thread stopping([&] { server_->stop(); });
  while (!state_->draining) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  responder->send({200, "text/plain", "finished", {}});
  EXPECT_TRUE(client.hear().ends_with("finished"));
  client.socket().close();
  stopping.join();
}

TEST_F(Tls, FilesThatCannotBe) {
  const Identity other("other");
  const auto attempt = [&](const std::string& certificate, const std::string& key) {
    try {
      serve({.tls_certificate = certificate, .tls_key = key});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(attempt(identity_.certificate, "").find("tls-key is missing"), std::string::npos);
  EXPECT_NE(attempt("/none", identity_.key).find("/none"), std::string::npos);
  EXPECT_NE(attempt(identity_.key, identity_.key).find("no certificate chain"), std::string::npos);
  EXPECT_NE(attempt(identity_.certificate, identity_.certificate).find("no private key"), std::string::npos);
  EXPECT_NE(attempt(identity_.certificate, other.key).find("belongs to the certificate"), std::string::npos);
  EXPECT_EQ(attempt(identity_.certificate, identity_.key), "accepted");
}

}  // namespace
}  // namespace lockstep
