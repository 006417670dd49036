// The page's route that shows which API keys use the device, which wait for it, and why: the numbers of /metrics, as JSON.
//  GET /api/device   {"shares": {class: percent}, "used": [{"class", "key", "seconds"}], "waiting": [{"class", "key", "seconds" or "count", "why"}],
//  "pieces": [{"kind", "count", "longest", "longest_stretch"}], "kept_rows": {"kept", "read", "beside", "dropped", "compared", "bytes"} or absent}
// Any thread.
//   add_device_route(routes, {service, executor, [trainers] { return trainers->waiting_reasons().models_waiting(); }});
#pragma once
#include "api/routes.h"
#include "serving/serving.h"

namespace lockstep {

struct DeviceSources {
  std::shared_ptr<GenerationService> service;
  std::shared_ptr<Executor> executor;
  // How many models wait for a place in memory, by the key's name; empty: this server trains nothing.
  std::function<std::map<std::string, std::int64_t>()> models_waiting = {};
  // What became of rows of kept forwards (docs/kept-forwards.md), as /metrics has it; empty, or an empty map: none are kept.
  std::function<std::map<std::string, std::int64_t>()> kept_rows = {};
};

void add_device_route(Routes& routes, DeviceSources sources);

}  // namespace lockstep
