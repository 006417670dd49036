// The live page: its files, and the data of runs that it asks for (runs/run_reader.h).
//  GET /   /assets/...                                   with ETag, gzip where it is accepted, a policy without inline scripts
//  GET /api/page                                         {"title", "playground", "device", "gates", "fleet"}
//  GET /api/runs   /api/runs/{run}                       the listing; config, result, parity
//  GET /api/runs/{run}/metrics?arm=&from=&file=&points=  columns of numbers from an offset on
//  GET /api/runs/{run}/transcripts?arm=[&step=]          steps that have some; those of one step
// The page asks again while it is seen; only new lines are sent. Files are read on a thread of their own. Any thread.
//   add_page_routes(routes, {.places = {.roots = {"runs"}}, .title = "countdown-rl"});
#pragma once
#include "api/routes.h"
#include "runs/run_reader.h"

namespace lockstep {

struct PageOptions {
  RunPlaces places;
  std::string title;
  bool playground = false;  // the same server answers OpenAI's API
  bool device = false;      // and says who has its device (api/page/device_route.h)
  bool gates = false;       // and what gates of its aliases found (api/openai/model_deployment_routes.h)
  bool fleet = false;       // and who follows its channel (api/fireworks/fleet_routes.h)
};

// All but the files need a key where the server asks for one. Who may ask at all is for routes.set_access to say.
void add_page_routes(Routes& routes, PageOptions options);

}  // namespace lockstep
