#include "cli/serve_http_options.h"

#include "base/log.h"
#include "cli/serve_keys.h"

namespace lockstep {
namespace {
constexpr std::int64_t kTrainingBodyKilobytes = 64 << 10, kTrainingConnections = 4096;
}

void add_serve_http_options(OptionTable& table, ServeHttpSettings& s) {
  table.text("host", &s.http.host, "ADDRESS", "Address to listen on; 0.0.0.0: every interface. One that other machines reach needs API keys");
  table.integer("port", &s.http.port, 0, 65535, "N", "Port to listen on; 0: any free one, which is printed");
  table.input("api-key-file", &s.key_file, "FILE",
              "Keys that requests must have as `Authorization: Bearer KEY`: lines `NAME KEY` or `NAME sha256:HEX`, behind that what it is allowed: weight=N, "
              "requests_per_minute=N, tokens_per_minute=N, streams=N, class=rollouts, keep_forward=true or false; SIGHUP reads it again. LOCKSTEP_API_KEY "
              "holds one more");
  table.flag("insecure", &s.insecure, "Allow an address that other machines reach without an API key");
  table.input("tls-certificate", &s.http.tls_certificate, "FILE", "Certificate chain in PEM: https instead of http");
  table.input("tls-key", &s.http.tls_key, "FILE", "Its private key in PEM, without a passphrase");
  table.texts("cors-origin", &s.access.cors_origins, "ORIGIN", "Allow requests from pages of this origin (https://example.com; *: all)");
  table.texts("allow-host", &s.access.hosts, "NAME", "Name that clients may call the server by, besides localhost; when given, no other name is answered");
  table.integer("max-connections", &s.http.max_connections, 1, 1 << 16, "N",
                fmt::format("Most open connections; default with --training: {}", kTrainingConnections));
  table.integer("max-body-kilobytes", &s.max_body_kilobytes, 1, 1 << 20, "N",
                fmt::format("Largest request body; more is answered with 413; default with --training: {}", kTrainingBodyKilobytes));
  table.integer("body-megabytes", &s.body_megabytes, 1, 1 << 24, "N",
                "Memory for all request bodies being read, decoded or waiting for their turn; one API key may take --key-share percent. More is answered with "
                "429 or 503");
  table.integer("max-held-bytes", &s.http.max_held_bytes, 1 << 20, std::int64_t{1} << 40, "N",
                "Most bytes of all answers that wait for their clients; beyond, the client that has not read for longest is closed");
  table.integer("max-pending-bytes", &s.http.max_pending_bytes, 1 << 10, std::int64_t{1} << 30, "N", "Most unread bytes of one stream; beyond, it is closed");
  table.number("idle-seconds", &s.http.idle_seconds, 0.1, 86400, "X", "How long a connection may wait between requests");
  table.number("body-seconds", &s.http.body_seconds, 0.1, 86400, "X", "How long a request's body may take");
  table.number("write-seconds", &s.http.write_seconds, 0.1, 86400, "X", "How long a client may take to read 256 KB of its answer");
  table.flag("access-log", &s.http.access_log, "Log one line per request: id, method, route, status, bytes, milliseconds, name of the key");
  table.choice("log-format", &s.log_format, {"text", "json"}, "Format of the log on stderr");
  table.number("drain-seconds", &s.http.drain_seconds, 0, 3600, "X", "How long a stopping server reports it (readyz: 503) before it stops listening");
  table.number("stop-seconds", &s.http.stop_seconds, 0, 3600, "X", "How long running requests may take to finish when the server stops");
}

std::shared_ptr<KeyRing> finish_http_options(ServeHttpSettings& s, const OptionTable& table, bool training) {
  if (training && !table.given("max-body-kilobytes")) s.max_body_kilobytes = kTrainingBodyKilobytes;
  if (training && !table.given("max-connections")) s.http.max_connections = kTrainingConnections;
  set_log_format(parse_log_format(s.log_format));
  s.http.max_body_bytes = s.max_body_kilobytes << 10;
  std::shared_ptr<KeyRing> ring;
  if (ApiKeys keys = read_keys(s.key_file); !keys.empty()) s.access.keys = ring = std::make_shared<KeyRing>(std::move(keys));
  if (!s.access.keys && !s.insecure && !is_loopback_address(s.http.host))
    throw UsageError(
        fmt::format("host is {}, which other machines reach, and there is no API key: --api-key-file or LOCKSTEP_API_KEY gives keys, --insecure goes without",
                    s.http.host));
  if (s.access.keys && s.http.tls_certificate.empty() && !is_loopback_address(s.http.host))
    log_warning("API keys, prompts and answers cross the network in clear text; --tls-certificate and --tls-key encrypt them, or a proxy in front that does",
                {{"host", s.http.host}});
  return ring;
}

}  // namespace lockstep
