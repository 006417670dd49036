// The live page beside a command that trains: its options, its address on the screen, and no harm to the work when it cannot be
// had. It reads what the run writes to disk and nothing else, so it changes no bit. One thread.
//   LivePage page; page.add_options(table); ... const auto server = page.start({.roots = {"runs"}, .live = "demo"}, "demo", stdout);
#pragma once
#include <cstdio>

#include "cli/options.h"
#include "http/page_server.h"

namespace lockstep {

class LivePage {
 public:
  // --page-port, --no-page; on the command line alone.
  void add_options(OptionTable& table);
  // Serves until the result goes, and prints `watch it live: URL`. Null with --no-page, and, with a warning, when no port can be had.
  std::unique_ptr<HttpServer> start(RunPlaces places, const std::string& title, std::FILE* to) const;

 private:
  std::int64_t port_ = 8088;
  bool on_ = true;
};

// runs/NAME/report.html; a run that ended well must not fail by it, so what goes wrong is a warning. Returns the file, or "".
std::string write_report_beside(const std::filesystem::path& run);

}  // namespace lockstep
