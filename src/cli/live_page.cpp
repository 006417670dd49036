#include "cli/live_page.h"

#include "base/log.h"
#include "runs/run_report.h"

namespace lockstep {

void LivePage::add_options(OptionTable& table) {
  table.integer("page-port", &port_, 0, 65535, "N", "Of the live page, on the loopback; 0, or when it is taken: any that is free").command_line_only();
  table.refused("with --no-page", [this] { return !on_; });
  table.flag("page", &on_, "Serve the live page while it runs; --no-page: not").command_line_only();
}

std::unique_ptr<HttpServer> LivePage::start(RunPlaces places, const std::string& title, std::FILE* to) const {
  if (!on_) return nullptr;
  try {
    auto server = serve_page({.places = std::move(places), .title = title}, port_);
    const bool other = port_ != 0 && server->port() != port_;
    std::fputs(fmt::format("watch it live: {}{}\n", server->url(), other ? fmt::format("   (port {} is taken)", port_) : "").c_str(), to);
    std::fflush(to);
    return server;
  } catch (const Error& e) {
    log_warning("there is no live page", {{"reason", e.what()}});
    return nullptr;
  }
}

std::string write_report_beside(const std::filesystem::path& run) {
  const std::filesystem::path file = run / "report.html";
  try {
    write_run_report(run, file);
    return file.string();
  } catch (const Error& e) {
    log_warning("the report was not written", {{"reason", e.what()}});
    return {};
  }
}

}  // namespace lockstep
