// `lockstep train rl`: reinforcement learning in an environment, as a run on disk that resumes to the same bits.
#include <chrono>
#include <cstdio>

#include "base/seconds.h"
#include "base/signals.h"
#include "cli/common_options.h"
#include "cli/live_page.h"
#include "cli/rl_options.h"
#include "cli/train_command.h"
#include "jobs/rl_job.h"
#include "runs/training_state.h"

namespace lockstep {
int run_train_rl(const Arguments& arguments) {
  RlJob job;
  RlSettings& settings = job.rl;
  RunSettings& run = job.run;
  std::string advantages;
  LivePage page;
  std::int64_t transcript_megabytes = run.transcript_bytes >> 20;
  std::string fork;
  bool json = false;
  OptionTable table("train rl",
                    "Reinforcement learning in an environment: sample, score, learn. Everything is in runs/NAME: config.json, metrics.jsonl, checkpoints, "
                    "export. Ctrl-C, SIGTERM and SIGHUP save; --resume goes on to the same bits.",
                    {"lockstep train rl --config recipes/countdown_rl.toml", "lockstep train rl --config recipes/countdown_rl.toml --set steps=10 --set name=short",
                     "lockstep train rl --config recipes/countdown_rl.toml --resume"});
  table.text("name", &run.name, "NAME", "Of the run: its folder");
  table.kept_folder("runs", &run.runs, "Where runs are");
  add_runtime_options(table, job.stack.runtime);
  add_ranks_option(table, &job.stack.runtime.ranks);
  add_rl_options(table, settings, advantages);
  table.text("rollout-profile", &job.stack.rollout_profile, "NAME", "Numerics profile of the sampler (default: the trainer's)");
  table.flag("allow-profile-mix", &job.allow_profile_mix, "Rollouts may come from another numerics profile than the trainer's; its KL is reported");
  table.integer("micro-batch", &job.stack.micro_batch, 0, 1 << 20, "N", "Sequences computed at a time, 0: all; changes no bit");
  table.flag("checkpoint-activations", &job.stack.checkpoint_activations, "Compute activations again in the backward pass; changes no bit");
  table.choice("optimizer-state", &job.optimizer_state, {"memory", "file"}, kOptimizerStateHelp);
  table.integer("checkpoint-every", &run.checkpoint_every, 0, 1 << 30, "N", "Steps; 0: at the end and on an interrupt alone");
  table.integer("keep-last", &run.keep_last, 0, 1 << 20, "N", "Checkpoints that stay, 0: all");
  table.choice("export-dtype", &job.export_dtype, {"bf16", "f32"}, "Of the exported weights");
  table.integer("transcripts", &job.transcripts, 0, 1 << 10, "N", "Rollouts that a step writes to transcripts.jsonl, of one group; 0: none");
  table.integer("transcripts-every", &job.transcripts_every, 1, 1 << 30, "N", "Steps from one that writes transcripts to the next");
  table.refused("with --transcripts 0", [&job] { return job.transcripts == 0; });
  table.integer("transcript-megabytes", &transcript_megabytes, 1, 1 << 20, "N", "Of transcripts kept; the oldest half goes first");
  table.refused("with --transcripts 0", [&job] { return job.transcripts == 0; });
  table.flag("resume", &run.resume, "Go on with a run that exists; more --steps are welcome, what changes its mathematics is refused");
  table.command_line_only();
  table.text("fork", &fork, "NAME", kForkHelp);
  table.command_line_only();
  page.add_options(table);
  add_json_option(table, &json, "Print one JSON object at the end");
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  settings.advantages = advantage_kind_by_name(advantages);
  const std::string forked_from = fork_of(run.runs, run.name, fork, run.resume);
  run.resolved = resolved_json(table);
  run.resolved["name"] = run.name;
  if (!forked_from.empty()) run.resolved["forked_from"] = forked_from;
  run.transcript_bytes = transcript_megabytes << 20;
  run.resume_line = resume_line("rl", arguments);
  run.quiet = json;
  run.say = [](const std::string& sentence) { std::fprintf(stderr, "%s\n", sentence.c_str()); };
  std::unique_ptr<HttpServer> page_server;
  run.on_start = [&] { page_server = page.start({.roots = {run.runs}, .live = run.name}, run.name, stderr); };
  install_interrupt_handlers();
  run.stop = interrupt_token();
  const auto begin = std::chrono::steady_clock::now();
  const RlSummary summary = run_rl(job);
  const RlTotals& totals = summary.totals;
  if (!summary.finished) {
    std::fprintf(stderr, "stopped after step %lld of %lld, saved; go on with\n  %s\n", static_cast<long long>(summary.steps), static_cast<long long>(settings.steps),
                 run.resume_line.c_str());
    return 128 + interrupt_signal();
  }
  page_server.reset();
  const std::string report = write_report_beside(summary.run);
  const std::string exported = summary.exported.string(), hash = summary.weights_sha256;
  const double seconds = seconds_since(begin);
  const double mean_reward = totals.mean_reward();
  if (json) {
    const nlohmann::ordered_json out{{"steps", summary.steps},
                                     {"steps_here", totals.steps},
                                     {"reward", mean_reward},
                                     {"kl", {{"k1", totals.kl.k1()}, {"k2", totals.kl.k2()}, {"k3", totals.kl.k3()}}},
                                     {"clipped", totals.kl.clipped_share()},
                                     {"different_bits", totals.kl.different_bits},
                                     {"tokens", totals.tokens},
                                     {"seconds", seconds},
                                     {"weights_sha256", hash},
                                     {"run", summary.run.string()},
                                     {"export", exported},
                                     {"report", report}};
    std::printf("%s\n", out.dump().c_str());
    return kExitOk;
  }
  std::printf("%lld steps; mean reward %.3f, k3 %.3g, %lld of %lld log-probabilities differ in bits\nweights %s\nexported to %s; try\n  lockstep eval %s --model %s\n",
              static_cast<long long>(summary.steps), mean_reward, totals.kl.k3(), static_cast<long long>(totals.kl.different_bits),
              static_cast<long long>(totals.kl.tokens), hash.c_str(), exported.c_str(), settings.environment.c_str(), exported.c_str());
  return kExitOk;
}

}  // namespace lockstep
