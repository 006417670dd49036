// Option rows of a server's HTTP (address, keys, limits, times), and their values as HttpOptions and Access. One thread.
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
// Reads the keys (null: there are none), sets the log's format, and the limits that depend on `training`: batches are megabytes, and clients open
// hundreds of sockets. UsageError for an address that other machines could reach without a key.
std::shared_ptr<KeyRing> finish_http_options(ServeHttpSettings& settings, const OptionTable& table, bool training);

}  // namespace lockstep
