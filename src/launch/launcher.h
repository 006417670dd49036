// Starts a run's processes by mpirun, watches them, and starts them again from the last checkpoint: when one was lost, with the hosts that are left; when a
// host is to be taken back; within a number of restarts. Bits do not depend on any of that.
//   const LaunchSummary summary = run_launch({.program = program, .hosts = hosts, .layout = choose, .run = "runs/a"}); return summary.status;
// The processes' stderr and stdout are this program's. Knows no model and no command line. One thread; any thread may stop it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>

#include "base/stop_token.h"
#include "launch/mpirun_line.h"

namespace lockstep {

struct LaunchSettings {
  LaunchProgram program;
  std::vector<Host> hosts;
  std::function<LaunchLayout(const std::vector<Host>&)> layout;  // of what is usable; throws where nothing fits
  std::filesystem::path run;                                     // its folder, which every host and this program see
  bool resume = false;                                           // the first start goes on with a run
  int restarts = 3;                                              // in a row without a new checkpoint
  double back_off = 1, take_back = 60;                           // seconds: before the second restart in a row; until a lost host is asked
  double save_seconds = 120;                                     // that a run may take to save when it is stopped
  std::filesystem::path log_file;                                // empty: launch.jsonl in the run's folder
  std::function<void(const std::string&)> say;                   // sentences for people; empty: none
  StopToken stop;                                                // when set, the run saves and ends
};

struct LaunchSummary {
  int status = 0;        // exit code of the program as process 0 told it; when it was stopped, whatever
  bool stopped = false;  // by the token
  int starts = 0, losses = 0;
  std::int64_t saved = 0;  // step of the newest checkpoint
};

// Errors: not_found without mpirun or the remote shell; io when the restarts are used up or no host is left, naming the host that was lost most often; those
// of `layout`.
LaunchSummary run_launch(const LaunchSettings& settings);

}  // namespace lockstep
