// The table of `lockstep`'s subcommands, and the program around them: overview, help, version, exit codes.
// A command is a file NAME_command.cpp and its row in commands.cpp. One thread.
//   return run_program({"generate", "--model", "models/m", "--prompt", "3 4 5=12:"});  // the exit code
#pragma once
#include <string>
#include <vector>

namespace lockstep {

using Arguments = std::vector<std::string>;  // behind the command's name

// 0 done, 1 an error, 2 the command line or the configuration is wrong, 3 a plan that does not fit, 4 a computation that gave NaN or infinity
// (a run that diverged), 128 + signal (129, 130, 143) interrupted: docs/cli.md, "Exit codes". A command returns or throws; the Error's
// text becomes one line on stderr.
inline constexpr int kExitOk = 0, kExitError = 1, kExitUsage = 2, kExitDoesNotFit = 3, kExitDiverged = 4;

struct Command {
  std::string_view name, summary;
  int (*run)(const Arguments& arguments);
};
const std::vector<Command>& commands();
// argv without the program's name.
int run_program(const Arguments& arguments);

int bench_command(const Arguments& arguments);
int bench_context_command(const Arguments& arguments);  // kinds of it
int bench_serve_command(const Arguments& arguments);
int chat_command(const Arguments& arguments);
int convert_command(const Arguments& arguments);
int deploy_command(const Arguments& arguments);
int demo_command(const Arguments& arguments);
int eval_command(const Arguments& arguments);
int fleet_command(const Arguments& arguments);
int generate_command(const Arguments& arguments);
int grad_command(const Arguments& arguments);
int index_share_command(const Arguments& arguments);
int info_command(const Arguments& arguments);
int launch_command(const Arguments& arguments);
int parity_command(const Arguments& arguments);
int plan_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int render_command(const Arguments& arguments);
int report_command(const Arguments& arguments);
int rollback_command(const Arguments& arguments);
int score_command(const Arguments& arguments);
int serve_command(const Arguments& arguments);
int shapes_command(const Arguments& arguments);
int simulate_command(const Arguments& arguments);
int snapshot_command(const Arguments& arguments);
int snapshot_mirror_command(const Arguments& arguments);
int tokenize_command(const Arguments& arguments);
int train_command(const Arguments& arguments);
int watch_command(const Arguments& arguments);

// version.cpp: the commit, and the text of --version.
std::string version_commit();
std::string version_text();

}  // namespace lockstep

int lockstep_main(int argc, char** argv);
