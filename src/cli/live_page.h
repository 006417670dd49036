// The live page beside a training command: its options, printing its address, and ignoring its failures.
//   LivePage page; page.add_options(table); ... const auto server = page.start({.roots = {"runs"}, .live = "demo"}, "demo", stdout);
// It reads only what the run writes to disk, so it changes no bit. One thread.
#pragma once
#include <cstdio>

#include "cli/options.h"
#include "http/page_server.h"

namespace lockstep {

class LivePage {
 public:
  // --page-port, --no-page; allowed on the command line, not in files.
  void add_options(OptionTable& table);
  // Serves until the result is destroyed, and prints `watch it live: URL`. Null with --no-page, and, with a warning, when no port is free.
  std::unique_ptr<HttpServer> start(RunPlaces places, const std::string& title, std::FILE* to) const;

 private:
  std::int64_t port_ = 8088;
  bool on_ = true;
};

// Writes runs/NAME/report.html; errors are only warnings, since the run itself succeeded. Returns the file, or "".
std::string write_report_beside(const std::filesystem::path& run);

}  // namespace lockstep
