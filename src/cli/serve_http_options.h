// Option rows of a server's HTTP: where it listens, who may ask, how much and how long; and what they come to. One thread.
//   ServeHttpSettings net; add_serve_http_options(table, net);   const auto ring = finish_http_options(net, table, training);
#pragma once
#include "api/access.h"
#include "cli/options.h"
#include "http/server.h"

namespace lockstep {

struct ServeHttpSettings {
  HttpOptions http = {.access_log = true};
  Access access;
  std::string key_file, log_format = "text";
  bool insecure = false;
  std::int64_t max_body_kilobytes = http.max_body_bytes >> 10, body_megabytes = http.max_bodies_bytes >> 20;
};
void add_serve_http_options(OptionTable& table, ServeHttpSettings& settings);
// Reads the keys, which are null where there are none, sets the log's format, and what depends on `training`: batches are megabytes, clients open hundreds of
// sockets. UsageError for an address that others reach without a key.
std::shared_ptr<KeyRing> finish_http_options(ServeHttpSettings& settings, const OptionTable& table, bool training);

}  // namespace lockstep
