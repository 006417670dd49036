// `lockstep train distill`: a student that writes, and teachers that say what they would have written.
#include <cmath>
#include <cstdio>

#include "base/seconds.h"
#include "base/signals.h"
#include "cli/common_options.h"
#include "cli/live_page.h"
#include "cli/train_command.h"
#include "cli/trained_options.h"
#include "jobs/distill_job.h"
#include "jobs/teacher_file.h"
#include "losses/distillation.h"
#include "runs/training_state.h"

namespace lockstep {
namespace {
nlohmann::ordered_json divergences_of(const DistillSummary& summary, const std::vector<TeacherSettings>& teachers) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (std::size_t t = 0; t < summary.totals.divergences.size(); ++t)
    if (std::isfinite(summary.totals.divergences[t])) json[teachers[t].name] = summary.totals.divergences[t];
  return json;
}
}  // namespace

int train_distill(const Arguments& arguments) {
  DistillJob job;
  DistillSettings& s = job.distill;
  RunSettings& run = job.run;
  TrainedSettings& trained = job.stack.trained;
  LivePage page;
  std::string fork, teachers;
  bool json = false;
  OptionTable table("train distill",
                    "Distillation on policy: the model writes, and moves towards what its teachers would have written there. Writes runs/NAME: config.json, "
                    "metrics.jsonl, checkpoints, export. Ctrl-C, SIGTERM and SIGHUP save; --resume continues to the same bits.",
                    {"lockstep train distill --model DIR --teachers teachers.toml --data prompts.jsonl --name merged",
                     "lockstep train distill --model DIR --teachers teachers.toml --environment countdown --over sampled --adapter-rank 8 --name sampled"});
  table.text("name", &run.name, "NAME", "Name of the run, and of its folder");
  table.kept_folder("runs", &run.runs, "Folder of runs");
  add_runtime_options(table, job.stack.runtime);
  add_ranks_option(table, &job.stack.runtime.ranks);
  table.input("teachers", &teachers, "FILE", "TOML, a table [[teacher]] each: name, folder, adapter, domains, weight (docs/distillation.md)");
  table.input("data", &job.data, "FILE", "JSONL, {\"prompt\", \"domain\"} a line");
  table.text("environment", &job.environment, "NAME", "Prompts are this environment's problems, of the domain of its name, instead of --data");
  table.integer("steps", &s.steps, 1, 1'000'000'000, "N", "Optimizer steps");
  table.integer("prompts", &s.prompts, 1, 1 << 20, "N", "Prompts per step");
  table.integer("rollouts", &s.rollouts, 1, 1 << 16, "N", "Completions per prompt");
  table.integer("max-tokens", &s.max_tokens, 1, 1 << 20, "N", "Most tokens of a completion, its end token included");
  table.number("temperature", &s.temperature, 0.001, 100, "X", "Sampling temperature of the completions; divergences are at 1");
  table.choice("over", &s.over, distill_places(),
               "The divergence at each token: over the whole vocabulary, over the teacher's likeliest and the rest as one, or of the sampled token alone");
  table.choice("divergence", &s.divergence, divergence_names(), "KL of student to teacher, of teacher to student, or half of each to their mean");
  table.refused("with --over sampled, which is the reverse one", [&s] { return s.over == "sampled"; });
  table.integer("teacher-top-k", &s.teacher_top_k, 1, SamplingParameters::kMaxTopLogprobs, "N", "How many of the teacher's likeliest tokens");
  table.refused("without --over top", [&s] { return s.over != "top"; });
  table.number("learning-rate", &job.learning_rate, 0, 10, "X", "Peak learning rate", "train sft's");
  table.choice("schedule", &s.schedule, {"constant", "linear", "cosine"}, "Learning rate schedule after the warm-up; linear and cosine end at 0");
  table.integer("warmup", &s.warmup, 0, 1'000'000'000, "N", "Steps of linear warm-up");
  add_adamw_options(table, s, 10);
  add_trained_options(table, trained);
  table.seed("seed", &s.seed, "Seed of prompts and sampling");
  table.seed("init-seed", &job.init_seed, "Seed of an adapter's initial weights");
  table.refused("without --adapter-rank", [&trained] { return trained.rank == 0; });
  table.integer("micro-batch", &job.stack.micro_batch, 0, 1 << 20, "N", "Sequences per micro-batch, 0: all; less memory, the same bits");
  table.flag("checkpoint-activations", &job.stack.checkpoint_activations, "Recompute activations in the backward pass: less memory, the same bits");
  table.choice("optimizer-state", &job.optimizer_state, {"memory", "file"}, kOptimizerStateHelp);
  add_checkpoint_options(table, run);
  table.choice("export-dtype", &job.export_dtype, {"bf16", "f32"}, "Number format of the exported weights");
  table.refused("with --adapter-rank, which exports fp32", [&trained] { return trained.rank > 0; });
  table.flag("quiet", &run.quiet, "No progress");
  table.flag("resume", &run.resume, "Resume an existing run; more --steps are allowed, changes of its mathematics are refused");
  table.command_line_only();
  table.text("fork", &fork, "NAME", kForkHelp);
  table.command_line_only();
  page.add_options(table);
  add_json_option(table, &json, "Print one JSON object at the end");
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;
  if (teachers.empty()) throw UsageError("--teachers is needed: a file that lists them");
  if (job.data.empty() == job.environment.empty()) throw UsageError("one of --data and --environment is needed");

  job.teachers = read_teacher_file(teachers);
  describe_run(run, table, "distill", arguments, fork);
  if (!run.quiet) run.say = [](const std::string& sentence) { std::fprintf(stderr, "%s\n", sentence.c_str()); };
  run.quiet = run.quiet || json;
  std::unique_ptr<HttpServer> page_server;
  run.on_start = [&] { page_server = page.start({.roots = {run.runs}, .live = run.name}, run.name, stderr); };
  install_interrupt_handlers();
  run.stop = interrupt_token();
  const auto begin = std::chrono::steady_clock::now();
  const DistillSummary summary = run_distill(job);
  if (!summary.finished) {
    std::fprintf(stderr, "stopped after step %lld of %lld, saved; go on with\n  %s\n", static_cast<long long>(summary.steps), static_cast<long long>(s.steps),
                 run.resume_line.c_str());
    return 128 + interrupt_signal();
  }
  page_server.reset();
  const std::string report = write_report_beside(summary.run), exported = summary.exported.string();
  const nlohmann::ordered_json divergences = divergences_of(summary, job.teachers);
  if (json) {
    const nlohmann::ordered_json out{{"steps", summary.steps},
                                     {"steps_here", summary.totals.steps},
                                     {"divergence", divergences},
                                     {"different_bits", summary.totals.kl.different_bits},
                                     {"tokens", summary.totals.tokens},
                                     {"seconds", seconds_since(begin)},
                                     {"weights_sha256", summary.weights_sha256},
                                     {"run", summary.run.string()},
                                     {"export", exported},
                                     {"report", report}};
    std::printf("%s\n", out.dump().c_str());
    return kExitOk;
  }
  std::printf("%lld steps; divergence %s\nweights %s\nexported to %s; try\n  lockstep serve --model %s\n", static_cast<long long>(summary.steps),
              divergences.dump().c_str(), summary.weights_sha256.c_str(), exported.c_str(),
              trained.rank > 0 ? fmt::format("{} --adapter {}={}", job.stack.runtime.model, run.name, exported).c_str() : exported.c_str());
  return kExitOk;
}

}  // namespace lockstep
