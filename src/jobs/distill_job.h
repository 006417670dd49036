// Starts a distillation run on disk (`lockstep train distill`), from a command, a server or a test.
//   DistillJob job; job.teachers = read_teacher_file("teachers.toml"); job.data = "prompts.jsonl"; const DistillSummary summary = run_distill(job);
// Knows no command line. One thread; any thread may stop it (RunSettings::stop).
#pragma once
#include "jobs/distill_work.h"

namespace lockstep {

struct DistillJob {
  DistillJob() { run.name = "distill", run.checkpoint_every = 100; }
  RunSettings run;
  RlStackSettings stack;  // the student; its optimizer_folder and stop follow from the rest
  DistillSettings distill;
  std::vector<TeacherSettings> teachers;
  std::int64_t teacher_bytes = 0;       // most bytes of teachers' weights in memory at once (runs/distillation/teachers.h); 0: no limit
  std::string data;                     // JSONL, {"prompt", "domain"} a line; or
  std::string environment;              // its problems are the prompts, with their domains (rl/environment.h)
  std::optional<double> learning_rate;  // the peak; not said: train sft's default (runs/sft_plan.h)
  std::uint64_t init_seed = 0;
  std::string optimizer_state = "memory";  // or "file"
  std::string export_dtype = "bf16";       // or f32
};

struct DistillSummary {
  std::int64_t steps = 0;  // done so far, those before a resume included
  DistillTotals totals;
  bool finished = false;
  std::int64_t teacher_forwards = 0;  // of teachers in this process, so far
  std::string weights_sha256;
  std::filesystem::path run, exported;
};

// One line of a file of prompts.
struct PromptLine {
  std::string prompt, domain;
};
// Errors: those of each_json_line; corrupt_file for a key or a value that is not known, for a file without lines.
std::vector<PromptLine> read_prompt_file(const std::string& path);

// Teachers and data are checked before a model is read. Errors: those of check_teachers, RlStack, Teachers, RunDirectory and DistillWork.
DistillSummary run_distill(const DistillJob& job);

}  // namespace lockstep
