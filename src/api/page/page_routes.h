// The live page: its files, and the data of runs that it asks for (runs/run_reader.h).
//  GET /   /assets/...                                   with ETag, gzip where it is accepted, a policy without inline scripts
//  GET /api/page                                         {"title", "playground", "device", "gates", "fleet"}
//  GET /api/runs   /api/runs/{run}                       the listing; config, result, parity
//  GET /api/runs/{run}/metrics?arm=&from=&file=&points=  columns of numbers from an offset on
//  GET /api/runs/{run}/transcripts?arm=[&step=]          steps that have some; those of one step
// The page polls while it is visible; only new lines are sent. Files are read on a thread of their own. Any thread.
//   add_page_routes(routes, {.places = {.roots = {"runs"}}, .title = "countdown-rl"});
#pragma once
#include "api/routes.h"
#include "runs/run_reader.h"

namespace lockstep {

struct PageOptions {
  RunPlaces places;
  std::string title;
  bool playground = false;  // the same server answers OpenAI's API
  bool device = false;      // it has the route of the device's use (api/page/device_route.h)
  bool gates = false;       // it has the reports of its aliases' gates (api/openai/model_deployment_routes.h)
  bool fleet = false;       // it has the route of replicas that follow its channel (api/fireworks/fleet_routes.h)
};

// All but the page's files need a key where the server asks for one (Routes::set_access).
void add_page_routes(Routes& routes, PageOptions options);

}  // namespace lockstep
