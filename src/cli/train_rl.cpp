// `lockstep train rl`: reinforcement learning in an environment, as a run on disk that resumes to the same bits.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/seconds.h"
#include "base/signals.h"
#include "cli/common_options.h"
#include "cli/follow_options.h"
#include "cli/keep_forward_options.h"
#include "cli/rl_options.h"
#include "cli/train_command.h"
#include "cli/trained_options.h"
#include "jobs/rl_job.h"
#include "rl/evaluation.h"
#include "trained/led_model.h"

namespace lockstep {
int run_train_rl(const Arguments& arguments) {
  RlJob job;
  RlSettings& settings = job.rl;
  RunSettings& run = job.run;
  RunCommand command(run);
  std::int64_t transcript_megabytes = run.transcript_bytes >> 20;
  std::string on_difference = "stop";
  ProcessSettings processes;
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
  add_transport_options(table, processes);
  add_rl_options(table, settings);
  TrainedSettings& trained = job.stack.trained;
  add_trained_options(table, trained);
  table.seed("init-seed", &job.init_seed, "Seed of initial weights, an adapter's or those of a new layer of multi-token prediction");
  table.refused("without --adapter-rank or --mtp-depths", [&] { return trained.rank == 0 && job.stack.mtp.depths == 0; });
  add_mtp_options(table, job.stack.mtp);
  table.after_reading([&] {
    if (!table.given("learning-rate")) settings.learning_rate = default_rl_learning_rate(trained);
    settings.warmup = std::min(settings.warmup, settings.steps);
  });
  table.text("rollout-profile", &job.stack.rollout_profile, "NAME", "Numerics profile of the sampler (default: the trainer's)");
  add_draft_options(table, job.stack.engine.drafts, "off", "rollout-speculation");
  table.flag("allow-profile-mix", &job.allow_profile_mix, "Rollouts may come from another numerics profile than the trainer's; its KL is reported");
  table.choice("on-difference", &on_difference, {"stop", "report"},
               "At a token whose log-probability is not, bit for bit, the sampler's: end the run before anything is learned from it and leave a case for "
               "lockstep parity --case, or count it and go on");
  table.refused("with --allow-profile-mix, which always reports", [&job] { return job.allow_profile_mix; });
  add_memory_options(table, job.stack.micro_batch, job.stack.checkpoint_activations, job.optimizer_state);
  add_keep_forward_options(table, job.stack.keep_forward, "rollouts'");
  add_checkpoint_options(table, run);
  add_export_dtype(table, job.export_dtype, trained, job.stack.runtime.profile, "weights");
  add_transcript_options(table, job.transcripts, job.transcripts_every, transcript_megabytes, "Rollouts of one group per step written to transcripts.jsonl");
  add_publish_options(table, job.publish,
                      "Publish the weights after every step, as what changed, for servers that follow the channel (lockstep serve --follow); the first time "
                      "all of them");
  command.add_options(table, "", "Print one JSON object at the end");
  if (!table.parse(arguments)) return kExitOk;
  check_publish(job.publish);
  if (follow_processes(processes, job.stack.runtime.isa)) return kExitOk;

  job.stop_at_difference = on_difference == "stop";
  command.describe(table, "rl", arguments);
  run.transcript_bytes = transcript_megabytes << 20;
  run.quiet = run.quiet || command.json();
  install_interrupt_handlers();
  const auto begin = std::chrono::steady_clock::now();
  command.measure(job.stack.runtime);
  const RlSummary summary = run_rl(job);
  const RlTotals& totals = summary.totals;
  if (!summary.finished) return command.stopped(fmt::format("stopped after step {} of {}; saved", summary.steps, settings.steps));
  const std::string report = command.finished(summary.run);
  const std::string exported = summary.exported.string(), hash = summary.weights_sha256;
  const double seconds = seconds_since(begin);
  const double mean_reward = totals.mean_reward();
  if (command.json()) {
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
    if (!summary.draft_sha256.empty()) out["draft_sha256"] = summary.draft_sha256;
    if (settings.critic.there()) out.update({{"critic_sha256", summary.critic_sha256}, {"critic_export", summary.critic_exported.string()}});
    std::printf("%s\n", out.dump().c_str());
    return kExitOk;
  }
  std::string tried = trained.rank > 0 ? job.stack.runtime.model + " --adapter " + exported : exported;
  if (settings.max_tokens != EvaluationSettings().max_tokens) tried += fmt::format(" --max-tokens {}", settings.max_tokens);
  if (settings.compact_at > 0) tried += fmt::format(" --compact-at {}", settings.compact_at);
  if (settings.chat) tried += " --chat";
  std::printf(
      "%lld steps; mean reward %.3f, k3 %.3g, %lld of %lld log-probabilities differ in bits\nweights %s\nexported to %s; try\n  lockstep eval %s --model %s\n",
      static_cast<long long>(summary.steps), mean_reward, totals.kl.k3(), static_cast<long long>(totals.kl.different_bits),
      static_cast<long long>(totals.kl.tokens), hash.c_str(), exported.c_str(), settings.environment.c_str(), tried.c_str());
  if (!summary.draft_sha256.empty()) std::printf("draft sha256 %s\n", summary.draft_sha256.c_str());
  if (settings.critic.there()) std::printf("critic %s\nexported to %s\n", summary.critic_sha256.c_str(), summary.critic_exported.c_str());
  return kExitOk;
}

}  // namespace lockstep
