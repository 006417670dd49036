// `lockstep report`: one HTML file of a run.
#include <cstdio>

#include "cli/commands.h"
#include "cli/options.h"
#include "runs/run_report.h"

namespace lockstep {

int report_command(const Arguments& arguments) {
  std::string run, out;
  OptionTable table("report", "Writes one self-contained HTML file of a run: curves, transcripts, parity. It opens from the disk, without a network.",
                    {"lockstep report runs/countdown-rl", "lockstep report runs/demo --out demo.html"});
  table.positional("RUN", &run, true, "The run's folder");
  table.output_file("out", &out, "File to write (default: RUN/report.html)");
  if (!table.parse(arguments)) return kExitOk;
  const std::filesystem::path file = out.empty() ? std::filesystem::path(run) / "report.html" : check_output_file(out, table.overwrite());
  write_run_report(run, file);
  std::printf("%s\n", out.empty() ? file.string().c_str() : out.c_str());
  return kExitOk;
}

}  // namespace lockstep
