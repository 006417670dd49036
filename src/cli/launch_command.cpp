// `lockstep launch`: training over several hosts by mpirun, which goes on with the hosts that are left when one is lost.
#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/signals.h"
#include "cli/device_rates.h"
#include "cli/launched_run.h"
#include "cli/options.h"
#include "cli/shipped.h"
#include "launch/launcher.h"
#include "launch/run_progress.h"

namespace lockstep {
namespace {

struct LaunchOptions {
  std::string hosts, hosts_file;
  LayoutWish wish;
  LaunchSettings settings;
  std::string log_file;
  std::int64_t restarts = LaunchSettings().restarts;
  bool resume_if_there = false, dry_run = false, quiet = false;
  Overwrite overwrite = Overwrite::no;
};

bool parse(const Arguments& arguments, LaunchOptions& o) {
  LaunchSettings& s = o.settings;
  OptionTable table(
      "launch",
      "Runs training as processes on several hosts, by Open MPI's mpirun: `lockstep launch OPTIONS -- train KIND ...`. When a process or a host is "
      "lost it goes on from the last checkpoint with what is left, and takes a host back that answers again; no bit depends on it.",
      {"lockstep launch --hosts localhost:2 --dry-run -- train sft --config recipes/countdown_sft.toml --name over-two",
       "lockstep launch --hosts a:8,b:8 --ranks tp=8,dp=2 --dry-run -- train rl --config recipes/countdown_rl.toml --name over-hosts --checkpoint-every 10"});
  table.text("hosts", &o.hosts, "LIST", "Hosts with slots, how many processes each takes: a:2,b is 2 on a and 1 on b");
  table.input("hosts-file", &o.hosts_file, "FILE", "Instead of --hosts: a host a line, `a slots=2` as for mpirun, or a:2");
  table.text("ranks", &o.wish.ranks, "LAYOUT",
             "tp=N,dp=N,ep=N,pp=N,cp=N,shard=state|weights, which holds whatever is left; or auto: a rank a slot, as `lockstep simulate` finds best");
  const auto held = [&o] { return o.wish.ranks != "auto"; };
  table.choice("device", &o.wish.device, rated_devices(), "Whose rates --ranks auto computes with: published ones, or this machine's, measured now");
  table.refused("without --ranks auto", held);
  table.integer("length", &o.wish.length, 0, 1 << 20, "N",
                "Tokens of a sequence that --ranks auto reckons with; 0: 4096, or the model's context if that is less");
  table.refused("without --ranks auto", held);
  table.number("network-gigabits", &o.wish.network, 0.001, 100000, "X", "Gigabits a second between hosts that --ranks auto reckons with",
               "400 of the data sheets, 10 with --device measured");
  table.refused("without --ranks auto", held);
  table.integer("restarts", &o.restarts, 0, 1000, "N", "Losses in a row without a new checkpoint after which it goes on; the next one ends it");
  table.number("back-off", &s.back_off, 0, 300, "SECONDS", "Wait before the second restart in a row; it doubles with each further one, to 300");
  table.number("take-back", &s.take_back, 0, 3600, "SECONDS", "From a host's loss until it is asked whether it answers; doubles with each loss, to an hour");
  table.number("save-seconds", &s.save_seconds, 1, 86400, "SECONDS", "What the run may take to save on Ctrl-C or SIGTERM before it is killed");
  table.flag("resume-if-there", &o.resume_if_there,
             "Go on with the run where its folder is there, begin it where not: for batch systems that start a job again");
  table.text("agent", &s.program.agent, "COMMAND", "Instead of ssh: what starts a command on a host, as COMMAND HOST WORDS; also asks whether a host answers");
  table.text("mpirun", &s.program.mpirun, "PROGRAM", "Open MPI's mpirun");
  table.texts("mpirun-word", &s.program.options, "WORD", "One more word for mpirun, as --mpirun-word=--mca");
  table.output_file("log-file", &o.log_file,
                    "Write starts, losses, layouts and seconds there, a JSON object a line (docs/cluster.md); default: runs/NAME/launch.jsonl");
  table.flag("dry-run", &o.dry_run, "Start nothing and ask no host: print hosts, layout and command line, and what would be left without each host");
  table.flag("quiet", &o.quiet, "No words of the launcher's own; those of the run stay");
  if (!table.parse(arguments)) return false;
  if (o.hosts.empty() == o.hosts_file.empty()) throw UsageError("exactly one of --hosts and --hosts-file is needed");
  s.restarts = static_cast<int>(o.restarts);
  s.log_file = o.log_file;
  o.overwrite = table.overwrite();
  return true;
}

std::string own_program() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) fail(ErrorCode::io, "cannot read '/proc/self/exe': {}", error.message());
  return path.string();
}

void print_plan(const LaunchSettings& s, bool resume) {
  const std::vector<Host> all = in_mpirun_order(s.hosts);
  const LaunchLayout layout = s.layout(all);
  std::printf("hosts    %s\nlayout   %s, %d process%s%s\nrun      %s%s\n", hosts_text(hosts_taken(all, layout.processes)).c_str(), layout.ranks.text().c_str(),
              layout.processes, layout.processes == 1 ? "" : "es", layout.why.empty() ? "" : (": " + layout.why).c_str(), s.run.c_str(),
              resume ? ", which is there: it is gone on with" : "");
  if (layout.processes < slots_of(all)) std::printf("unused   %d of %d slots\n", slots_of(all) - layout.processes, slots_of(all));
  std::printf("command  %s\n", shell_text(mpirun_line(s.program, all, layout, resume)).c_str());
  for (const Host& gone : all) {
    std::vector<Host> rest = all;
    std::erase(rest, gone);
    if (rest.empty()) continue;
    const LaunchLayout left = s.layout(rest);
    std::printf("without %s: %s, %d process%s\n  %s\n", gone.name.c_str(), left.ranks.text().c_str(), left.processes, left.processes == 1 ? "" : "es",
                shell_text(mpirun_line(s.program, rest, left, true)).c_str());
  }
}

}  // namespace

int launch_command(const Arguments& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  LaunchOptions o;
  if (!parse({arguments.begin(), dashes}, o)) return kExitOk;
  if (dashes == arguments.end()) throw UsageError("the command to launch is missing; allowed is lockstep launch OPTIONS -- train KIND ...");
  const Arguments words(dashes + 1, arguments.end());
  const std::optional<LaunchedRun> run = read_launched_run(words);
  if (!run) return kExitOk;
  if (!run->runtime.ranks.empty() && o.wish.ranks != "auto")
    throw UsageError(fmt::format("--ranks is {} and behind -- it is {}; allowed is one of them", o.wish.ranks, run->runtime.ranks));

  LaunchSettings& s = o.settings;
  s.hosts = o.hosts_file.empty() ? read_hosts(o.hosts) : read_hosts_text(read_file(o.hosts_file, 1 << 20), o.hosts_file);
  s.program.program = {own_program()};
  for (const std::string& word : words)
    if (word != "--resume") s.program.program.push_back(word);
  s.run = run->folder;
  LayoutChoice choice(*run, o.wish);
  s.layout = [&choice](const std::vector<Host>& hosts) { return choice(hosts); };
  const bool there = RunProgress(s.run).begun();
  s.resume = run->resume || (o.resume_if_there && there);
  if (there && !s.resume)
    fail(ErrorCode::already_exists, "the run '{}' exists; allowed is another --name, or --resume-if-there to go on with it", s.run.string());
  if (run->resume && !there) fail(ErrorCode::not_found, "there is no run '{}' to resume; --resume-if-there begins it where it is not there", s.run.string());
  if (o.dry_run) {
    print_plan(s, s.resume);
    return kExitOk;
  }
  if (!o.quiet) {
    s.say = [](const std::string& sentence) { std::fprintf(stderr, "launch: %s\n", sentence.c_str()); };
    if (!run->saves) s.say("--checkpoint-every is 0: whoever is lost, the run begins anew; only a stop saves");
  }
  if (!o.log_file.empty()) write_output_file(o.log_file, "", o.overwrite);  // it is appended to from here on
  install_interrupt_handlers();
  s.stop = interrupt_token();
  const LaunchSummary summary = run_launch(s);
  if (s.say)
    s.say(fmt::format("{} after {} start{} and {} loss{}, saved at step {}",
                      summary.stopped       ? "stopped"
                      : summary.status == 0 ? "done"
                                            : "the run failed",
                      summary.starts, summary.starts == 1 ? "" : "s", summary.losses, summary.losses == 1 ? "" : "es", summary.saved));
  if (summary.stopped) std::fprintf(stderr, "to go on: the same command with --resume-if-there\n");
  return summary.stopped ? 128 + interrupt_signal() : summary.status;
}

}  // namespace lockstep
