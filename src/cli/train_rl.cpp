// `lockstep train rl`: reinforcement learning in an environment, as a run on disk that resumes to the same bits.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/seconds.h"
#include "base/signals.h"
#include "cli/common_options.h"
#include "cli/follow_options.h"
#include "cli/live_page.h"
#include "cli/rl_options.h"
#include "cli/train_command.h"
#include "cli/trained_options.h"
#include "jobs/rl_job.h"
#include "runs/training_state.h"

namespace lockstep {
int run_train_rl(const Arguments& arguments) {
  RlJob job;
  RlSettings& settings = job.rl;
  RunSettings& run = job.run;
  LivePage page;
  std::int64_t transcript_megabytes = run.transcript_bytes >> 20;
  std::string fork;
  std::string on_difference = "stop";
  bool json = false;
  OptionTable table(
      "train rl",
      "Reinforcement learning in an environment. Writes runs/NAME: config.json, metrics.jsonl, checkpoints, "
      "export. Ctrl-C, SIGTERM and SIGHUP save; --resume continues to the same bits.",
      {"lockstep train rl --config recipes/countdown_rl.toml", "lockstep train rl --config recipes/countdown_rl.toml --set steps=10 --set name=short",
       "lockstep train rl --config recipes/countdown_rl.toml --adapter-rank 8 --name adapter",
       "lockstep train rl --model models/countdown-glm --algorithm ppo --rollouts 1 --name single",
       "lockstep train rl --config recipes/countdown_rl.toml --resume"});
  table.text("name", &run.name, "NAME", "Name of the run, and of its folder");
  table.kept_folder("runs", &run.runs, "Folder of runs");
  add_runtime_options(table, job.stack.runtime);
  add_ranks_option(table, &job.stack.runtime.ranks);
  add_rl_options(table, settings);
  TrainedSettings& trained = job.stack.trained;
  add_trained_options(table, trained);
  table.seed("init-seed", &job.init_seed, "Seed of an adapter's initial weights");
  table.refused("without --adapter-rank", [&trained] { return trained.rank == 0; });
  table.after_reading([&] {
    if (!table.given("learning-rate")) settings.learning_rate = default_rl_learning_rate(trained);
    settings.warmup = std::min(settings.warmup, settings.steps);
  });
  table.text("rollout-profile", &job.stack.rollout_profile, "NAME", "Numerics profile of the sampler (default: the trainer's)");
  add_draft_options(table, job.stack.engine.drafts, "off", "rollout-speculation");
  table.flag("allow-profile-mix", &job.allow_profile_mix, "Rollouts may come from another numerics profile than the trainer's; its KL is reported");
  table.choice("on-difference", &on_difference, {"stop", "report"},
               "At a token whose log-probability is not, bit for bit, the sampler's: end the run before anything is learned from it, or count it and go on");
  table.refused("with --allow-profile-mix, which always reports", [&job] { return job.allow_profile_mix; });
  table.integer("micro-batch", &job.stack.micro_batch, 0, 1 << 20, "N", "Sequences per micro-batch, 0: all; less memory, the same bits");
  table.flag("checkpoint-activations", &job.stack.checkpoint_activations, "Recompute activations in the backward pass: less memory, the same bits");
  table.choice("optimizer-state", &job.optimizer_state, {"memory", "file"}, kOptimizerStateHelp);
  add_checkpoint_options(table, run);
  table.choice("export-dtype", &job.export_dtype, {"bf16", "f32"}, "Number format of the exported weights");
  table.refused("with --adapter-rank, which exports fp32", [&trained] { return trained.rank > 0; });
  table.integer("transcripts", &job.transcripts, 0, 1 << 10, "N", "Rollouts of one group per step written to transcripts.jsonl; 0: none");
  table.integer("transcripts-every", &job.transcripts_every, 1, 1 << 30, "N", "Steps between transcripts");
  table.refused("with --transcripts 0", [&job] { return job.transcripts == 0; });
  table.integer("transcript-megabytes", &transcript_megabytes, 1, 1 << 20, "N", "Most megabytes of transcripts; the older half is deleted first");
  table.refused("with --transcripts 0", [&job] { return job.transcripts == 0; });
  table.flag("quiet", &run.quiet, "No progress");
  table.flag("resume", &run.resume, "Resume an existing run; more --steps are allowed, changes of its mathematics are refused");
  table.command_line_only();
  add_publish_options(table, job.publish,
                      "Publish the weights after every step, as what changed, for servers that follow the channel (lockstep serve --follow); the first time "
                      "all of them");
  table.text("fork", &fork, "NAME", kForkHelp);
  table.command_line_only();
  page.add_options(table);
  add_json_option(table, &json, "Print one JSON object at the end");
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  job.stop_at_difference = on_difference == "stop";
  describe_run(run, table, "rl", arguments, fork);
  run.transcript_bytes = transcript_megabytes << 20;
  if (!run.quiet) run.say = [](const std::string& sentence) { std::fprintf(stderr, "%s\n", sentence.c_str()); };
  run.quiet = run.quiet || json;
  std::unique_ptr<HttpServer> page_server;
  run.on_start = [&] { page_server = page.start({.roots = {run.runs}, .live = run.name}, run.name, stderr); };
  install_interrupt_handlers();
  run.stop = interrupt_token();
  const auto begin = std::chrono::steady_clock::now();
  const RlSummary summary = run_rl(job);
  const RlTotals& totals = summary.totals;
  if (!summary.finished) {
    std::fprintf(stderr, "stopped after step %lld of %lld, saved; go on with\n  %s\n", static_cast<long long>(summary.steps),
                 static_cast<long long>(settings.steps), run.resume_line.c_str());
    return 128 + interrupt_signal();
  }
  page_server.reset();
  const std::string report = write_report_beside(summary.run);
  const std::string exported = summary.exported.string(), hash = summary.weights_sha256;
  const double seconds = seconds_since(begin);
  const double mean_reward = totals.mean_reward();
  if (json) {
    nlohmann::ordered_json out{{"steps", summary.steps},
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
    if (settings.critic.there()) out.update({{"critic_sha256", summary.critic_sha256}, {"critic_export", summary.critic_exported.string()}});
    std::printf("%s\n", out.dump().c_str());
    return kExitOk;
  }
  const std::string tried = trained.rank > 0 ? job.stack.runtime.model + " --adapter " + exported : exported;
  std::printf(
      "%lld steps; mean reward %.3f, k3 %.3g, %lld of %lld log-probabilities differ in bits\nweights %s\nexported to %s; try\n  lockstep eval %s --model %s\n",
      static_cast<long long>(summary.steps), mean_reward, totals.kl.k3(), static_cast<long long>(totals.kl.different_bits),
      static_cast<long long>(totals.kl.tokens), hash.c_str(), exported.c_str(), settings.environment.c_str(), tried.c_str());
  if (settings.critic.there()) std::printf("critic %s\nexported to %s\n", summary.critic_sha256.c_str(), summary.critic_exported.c_str());
  return kExitOk;
}

}  // namespace lockstep
