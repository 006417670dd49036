// `lockstep train rl`: reinforcement learning in an environment, as a run on disk that resumes to the same bits.
#include <chrono>
#include <cstdio>

#include "base/seconds.h"
#include "base/signals.h"
#include "cli/common_options.h"
#include "cli/live_page.h"
#include "cli/rl_options.h"
#include "cli/train_command.h"
#include "observe/progress.h"
#include "rl/policy_training.h"
#include "runs/divergence.h"
#include "runs/rl_run.h"
#include "runs/training_state.h"

namespace lockstep {
namespace {
struct Totals {
  KlSums kl;
  std::int64_t tokens = 0;
  double reward = 0;
  std::int64_t steps = 0, without_spread = 0;  // steps in which every group's rewards were equal
};
}  // namespace

int run_train_rl(const Arguments& arguments) {
  RlSettings settings;
  RlRunConfig config;
  std::string advantages;
  LivePage page;
  std::int64_t transcripts = 8, transcripts_every = 1, transcript_megabytes = config.transcript_bytes >> 20;
  std::string fork;
  bool allow_profile_mix = false, resume = false, json = false;
  OptionTable table("train rl",
                    "Reinforcement learning in an environment: sample, score, learn. Everything is in runs/NAME: config.json, metrics.jsonl, checkpoints, "
                    "export. Ctrl-C, SIGTERM and SIGHUP save; --resume goes on to the same bits.",
                    {"lockstep train rl --config recipes/countdown_rl.toml", "lockstep train rl --config recipes/countdown_rl.toml --set steps=10 --set name=short",
                     "lockstep train rl --config recipes/countdown_rl.toml --resume"});
  table.text("name", &config.name, "NAME", "Of the run: its folder");
  table.kept_folder("runs", &config.runs, "Where runs are");
  add_runtime_options(table, config.stack.runtime);
  add_ranks_option(table, &config.stack.runtime.ranks);
  add_rl_options(table, settings, advantages);
  table.text("rollout-profile", &config.stack.rollout_profile, "NAME", "Numerics profile of the sampler (default: the trainer's)");
  table.flag("allow-profile-mix", &allow_profile_mix, "Rollouts may come from another numerics profile than the trainer's; its KL is reported");
  table.integer("micro-batch", &config.stack.micro_batch, 0, 1 << 20, "N", "Sequences computed at a time, 0: all; changes no bit");
  table.flag("checkpoint-activations", &config.stack.checkpoint_activations, "Compute activations again in the backward pass; changes no bit");
  table.choice("optimizer-state", &config.optimizer_state, {"memory", "file"}, kOptimizerStateHelp);
  table.integer("checkpoint-every", &config.checkpoint_every, 0, 1 << 30, "N", "Steps; 0: at the end and on an interrupt alone");
  table.integer("keep-last", &config.keep_last, 0, 1 << 20, "N", "Checkpoints that stay, 0: all");
  table.choice("export-dtype", &config.export_dtype, {"bf16", "f32"}, "Of the exported weights");
  table.integer("transcripts", &transcripts, 0, 1 << 10, "N", "Rollouts that a step writes to transcripts.jsonl, of one group; 0: none");
  table.integer("transcripts-every", &transcripts_every, 1, 1 << 30, "N", "Steps from one that writes transcripts to the next");
  table.refused("with --transcripts 0", [&transcripts] { return transcripts == 0; });
  table.integer("transcript-megabytes", &transcript_megabytes, 1, 1 << 20, "N", "Of transcripts kept; the oldest half goes first");
  table.refused("with --transcripts 0", [&transcripts] { return transcripts == 0; });
  table.flag("resume", &resume, "Go on with a run that exists; more --steps are welcome, what changes its mathematics is refused");
  table.command_line_only();
  table.text("fork", &fork, "NAME", kForkHelp);
  table.command_line_only();
  page.add_options(table);
  add_json_option(table, &json, "Print one JSON object at the end");
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  settings.advantages = advantage_kind_by_name(advantages);
  check(settings);
  config.stack.profile_mix = allow_profile_mix ? ProfileMix::allowed : ProfileMix::refused;
  config.stack.share_prompts = share_prompts_by_name(settings.share_prompts);
  const std::string forked_from = fork_of(config.runs, config.name, fork, resume);
  config.resolved = resolved_json(table);
  config.resolved["name"] = config.name;
  if (!forked_from.empty()) config.resolved["forked_from"] = forked_from;
  config.transcript_bytes = transcript_megabytes << 20;
  config.resume_line = resume_line("rl", arguments);
  install_interrupt_handlers();
  const auto begin = std::chrono::steady_clock::now();
  const auto environment = make_environment(settings.environment);
  RlRun run(config, resume);
  RlStack& stack = run.stack();
  auto page_server = page.start({.roots = {config.runs}, .live = config.name}, config.name, stderr);
  PolicyTraining training(*environment, stack.tokenizer(), stack.rollouts(), stack.trainer(), settings, allow_profile_mix);

  Totals totals;
  {
    Progress progress({.label = "rl", .total = settings.steps, .already_done = run.step(), .unit = "tokens", .quiet = json});
    try {
      ForwardCounts before = stack.rollout_counters().work;
      while (run.step() < settings.steps && !interrupted()) {
        const double rate = scheduled_rate(settings.schedule, settings.learning_rate, settings.warmup, settings.steps, run.step());
        const DivergenceSettings divergence{.step = run.step() + 1, .learning_rate = rate, .max_norm = settings.max_norm, .run = run.path()};
        const PolicyStep step = named_divergence(divergence, [&] {
          return training.step(run.step(), optimizer_step(settings, rate), [&](const StepRollouts& rollouts) {
            if (rollouts.step % transcripts_every == 0) run.log_transcripts(transcripts_of(rollouts, stack.tokenizer(), transcripts));
          });
        });
        const ForwardCounts after = stack.rollout_counters().work;
        nlohmann::ordered_json metrics = to_json(step);
        metrics["pairs_skipped_share"] = (after - before).skipped_share();
        before = after;
        run.finished_step(metrics);
        totals.kl.add(step.kl);
        totals.tokens += step.tokens;
        totals.reward += step.reward;
        ++totals.steps;
        totals.without_spread += step.zero_spread >= 1;
        progress.note(fmt::format("reward {:.3f}, k3 {:.3g}", step.reward, step.kl.k3()));
        progress.advance(1, static_cast<double>(step.tokens));
      }
    } catch (const Error& e) {
      if (e.code() != ErrorCode::cancelled || !interrupted()) throw;  // the step was not taken
    }
  }
  run.save();
  if (totals.steps == 0 && run.step() >= settings.steps)
    std::fprintf(stderr, "the run '%s' was finished at step %lld: nothing is trained; --steps with a larger number goes on\n", run.path().string().c_str(), static_cast<long long>(run.step()));
  if (totals.steps > 0 && totals.without_spread == totals.steps)
    std::fprintf(stderr, "nothing was learned: in none of the %lld steps did the rewards of a group differ (mean reward %.3f); the problems are too hard or too easy for this model, or --rollouts too few\n",
                 static_cast<long long>(totals.steps), totals.reward / static_cast<double>(totals.steps));
  if (run.step() < settings.steps) {
    std::fprintf(stderr, "stopped after step %lld of %lld, saved; go on with\n  %s\n", static_cast<long long>(run.step()),
                 static_cast<long long>(settings.steps), config.resume_line.c_str());
    return 128 + interrupt_signal();
  }
  const std::string exported = run.export_model().string();
  page_server.reset();
  const std::string report = write_report_beside(run.path());
  const std::string hash = stack.weights_sha256();
  const double seconds = seconds_since(begin);
  const double mean_reward = totals.steps > 0 ? totals.reward / static_cast<double>(totals.steps) : 0.0;
  if (json) {
    const nlohmann::ordered_json out{{"steps", run.step()},
                                     {"steps_here", totals.steps},
                                     {"reward", mean_reward},
                                     {"kl", {{"k1", totals.kl.k1()}, {"k2", totals.kl.k2()}, {"k3", totals.kl.k3()}}},
                                     {"clipped", totals.kl.clipped_share()},
                                     {"different_bits", totals.kl.different_bits},
                                     {"tokens", totals.tokens},
                                     {"seconds", seconds},
                                     {"weights_sha256", hash},
                                     {"run", run.path().string()},
                                     {"export", exported},
                                     {"report", report}};
    std::printf("%s\n", out.dump().c_str());
    return kExitOk;
  }
  std::printf("%lld steps; mean reward %.3f, k3 %.3g, %lld of %lld log-probabilities differ in bits\nweights %s\nexported to %s; try\n  lockstep eval %s --model %s\n",
              static_cast<long long>(run.step()), mean_reward, totals.kl.k3(), static_cast<long long>(totals.kl.different_bits),
              static_cast<long long>(totals.kl.tokens), hash.c_str(), exported.c_str(), settings.environment.c_str(), exported.c_str());
  return kExitOk;
}

}  // namespace lockstep
