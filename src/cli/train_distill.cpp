// `lockstep train distill`: on-policy distillation: a student samples, and teachers score its tokens.
#include <cmath>
#include <cstdio>

#include "base/seconds.h"
#include "base/signals.h"
#include "cli/common_options.h"
#include "cli/train_command.h"
#include "cli/trained_options.h"
#include "jobs/distill_job.h"
#include "jobs/teacher_file.h"
#include "losses/distillation.h"
#include "trained/led_model.h"

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
  RunCommand command(run);
  std::string teachers;
  std::int64_t teacher_megabytes = 0;
  ProcessSettings processes;
  OptionTable table("train distill",
                    "Distillation on policy: the model writes, and moves towards what its teachers would have written there. Writes runs/NAME: config.json, "
                    "metrics.jsonl, checkpoints, export. Ctrl-C, SIGTERM and SIGHUP save; --resume continues to the same bits.",
                    {"lockstep train distill --model DIR --teachers teachers.toml --data prompts.jsonl --name merged",
                     "lockstep train distill --model DIR --teachers teachers.toml --environment countdown --over sampled --adapter-rank 8 --name sampled"});
  table.text("name", &run.name, "NAME", "Name of the run, and of its folder");
  table.kept_folder("runs", &run.runs, "Folder of runs");
  add_runtime_options(table, job.stack.runtime);
  add_ranks_option(table, &job.stack.runtime.ranks);
  add_transport_options(table, processes);
  table.input("teachers", &teachers, "FILE",
              "TOML, a table [[teacher]] each: name, folder, adapter, checkpoint or url, domains, weight (docs/distillation.md)");
  table.integer("teacher-megabytes", &teacher_megabytes, 0, std::int64_t{1} << 30, "N",
                "What the weights of teachers' folders take at most at once: they are loaded in turn, which changes no bit; 0: all are in memory");
  table.input("data", &job.data, "FILE", "JSONL, {\"prompt\", \"domain\"} a line");
  table.text("environment", &job.environment, "NAME", "Prompts are this environment's problems, each of its domain, instead of --data");
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
  add_adapter_seed(table, job.init_seed, trained);
  add_memory_options(table, job.stack.micro_batch, job.stack.checkpoint_activations, job.optimizer_state);
  add_checkpoint_options(table, run);
  add_export_dtype(table, job.export_dtype, trained, job.stack.runtime.profile, "weights");
  command.add_options(table, "", "Print one JSON object at the end");
  if (!table.parse(arguments)) return kExitOk;
  if (teachers.empty()) throw UsageError("--teachers is needed: a file that lists them");
  if (job.data.empty() == job.environment.empty()) throw UsageError("one of --data and --environment is needed");
  if (follow_processes(processes, job.stack.runtime.isa)) return kExitOk;

  job.teachers = read_teacher_file(teachers);
  job.teacher_bytes = teacher_megabytes << 20;
  command.describe(table, "distill", arguments);
  run.quiet = run.quiet || command.json();
  install_interrupt_handlers();
  const auto begin = std::chrono::steady_clock::now();
  command.measure(job.stack.runtime);
  const DistillSummary summary = run_distill(job);
  if (!summary.finished) return command.stopped(fmt::format("stopped after step {} of {}; saved", summary.steps, s.steps));
  const std::string report = command.finished(summary.run), exported = summary.exported.string();
  const nlohmann::ordered_json divergences = divergences_of(summary, job.teachers);
  if (command.json()) {
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
