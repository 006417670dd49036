// `lockstep watch`: the live page for runs on disk, finished or not, until Ctrl-C.
#include <cstdio>
#include <thread>

#include "base/error.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "http/page_server.h"

namespace lockstep {

int watch_command(const Arguments& arguments) {
  std::vector<std::string> given;
  std::string first, parity;
  std::int64_t port = 8088;
  OptionTable table("watch", "Shows runs in a browser: curves, transcripts, parity; running ones update. RUNS is a run (runs/NAME) or a folder of runs.",
                    {"lockstep watch", "lockstep watch runs/countdown-rl", "lockstep watch runs --run other/demo --port 0"});
  table.positional("RUNS", &first, false, "A run, or a folder of runs (default: runs)");
  table.inputs("run", &given, "DIR", "Another one");
  table.input("parity", &parity, "FILE", "Output of `lockstep parity --json`, for runs without a parity.json");
  table.integer("port", &port, 0, 65535, "N", "Port of the page; any free one if 0 or taken");
  if (!table.parse(arguments)) return kExitOk;

  given.insert(given.begin(), first.empty() ? "runs" : first);
  RunPlaces places;
  for (const std::string& path : given) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) fail(ErrorCode::not_found, "there is no folder '{}'", path);
    const Json own = RunReader({.runs = {path}}).list();
    (own["runs"].empty() ? places.roots : places.runs).push_back(path);
  }
  if (!parity.empty()) places.parity = parity;
  std::error_code error;
  const std::string title = std::filesystem::weakly_canonical(given.front(), error).filename().string();
  install_interrupt_handlers();
  const auto server = serve_page({.places = std::move(places), .title = title}, port);
  if (port != 0 && server->port() != port) std::fprintf(stderr, "port %lld is taken\n", static_cast<long long>(port));
  std::printf("watch it live: %s\n", server->url().c_str());
  std::fflush(stdout);
  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return kExitOk;
}

}  // namespace lockstep
