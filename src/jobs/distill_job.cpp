#include "jobs/distill_job.h"

#include <algorithm>

#include "base/choice.h"
#include "base/error.h"
#include "base/hash.h"
#include "rl/environment.h"
#include "runs/run_settings.h"
#include "runs/sft_data.h"
#include "runs/sft_plan.h"
#include "runs/training_state.h"
#include "train/kept_passes.h"

namespace lockstep {
namespace {
std::vector<std::string> domains_of(const std::vector<PromptLine>& lines) {
  std::vector<std::string> domains;
  for (const PromptLine& line : lines)
    if (std::find(domains.begin(), domains.end(), line.domain) == domains.end()) domains.push_back(line.domain);
  return domains;
}

std::string prompt_digest(const std::vector<PromptLine>& lines) {
  std::string text;
  for (const PromptLine& line : lines) text += fmt::format("{} {}\n{}\n", line.prompt.size(), line.prompt, line.domain);
  return fmt::format("{:016x}", xxh3(text.data(), text.size()));
}

// With the checkpoint of each run that is one now: of a run that goes on meanwhile there are others later.
std::vector<TeacherSettings> settled_teachers(std::vector<TeacherSettings> teachers) {
  for (TeacherSettings& t : teachers)
    if (!t.checkpoint.empty())
      with_context(fmt::format("reading the checkpoint of teacher '{}', a run or one of its checkpoints", t.name),
                   [&] { t.checkpoint = teacher_checkpoint(t.checkpoint).folder.string(); });
  return teachers;
}

std::string teacher_digest(const std::vector<TeacherSettings>& teachers) {
  std::string text;
  for (const TeacherSettings& t : teachers) text += fmt::format("{}\n{}\n{}\n{}\n{}\n", t.name, t.folder, t.adapter, fmt::join(t.domains, "\n"), t.weight);
  for (const TeacherSettings& t : teachers)
    if (!t.checkpoint.empty()) text += fmt::format("checkpoint {}\n", t.checkpoint);
  for (const TeacherSettings& t : teachers)
    if (t.is_far()) text += fmt::format("{}\n{}\n{}\n{}\n", t.url, t.model, t.send, t.logprobs);
  return fmt::format("{:016x}", xxh3(text.data(), text.size()));
}

DistillPrompts prompts_of(const std::vector<PromptLine>& lines, const DistillSettings& settings, const Tokenizer& tokenizer) {
  std::vector<DistillPrompt> all;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    all.push_back({tokenizer.encode(lines[i].prompt, true), lines[i].domain});
    if (all.back().tokens.empty()) fail(ErrorCode::corrupt_file, "prompt {} has no tokens", i + 1);
  }
  return [all = std::move(all), seed = settings.seed](std::int64_t step, std::int64_t count) {
    std::vector<DistillPrompt> chosen;
    for (const std::size_t place : shuffled_places(all.size(), seed, step, count)) chosen.push_back(all[place]);
    return chosen;
  };
}

DistillPrompts prompts_of(const Environment& environment, const DistillSettings& settings, const Tokenizer& tokenizer) {
  return [&environment, &tokenizer, seed = settings.seed](std::int64_t step, std::int64_t count) {
    std::vector<DistillPrompt> prompts;
    for (std::int64_t i = 0; i < count; ++i) {
      const Problem problem = environment.problem(Split::train, seed, static_cast<std::uint64_t>(step * count + i));
      prompts.push_back({tokenizer.encode(problem.prompt, true), problem.domain.empty() ? environment.name() : problem.domain});
    }
    return prompts;
  };
}
}  // namespace

std::vector<PromptLine> read_prompt_file(const std::string& path) {
  std::vector<PromptLine> lines;
  each_json_line(path, [&](std::int64_t, const nlohmann::ordered_json& line) {
    static const std::vector<std::string> keys = {"prompt", "domain"};
    if (!line.is_object()) fail(ErrorCode::corrupt_file, "is {}, allowed is a JSON object", line.type_name());
    for (const auto& [key, value] : line.items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        fail(ErrorCode::corrupt_file, "has the key '{}', allowed are 'prompt' and 'domain'{}", key.substr(0, 60), did_you_mean(key, keys));
      if (!value.is_string()) fail(ErrorCode::corrupt_file, "'{}' is {}, allowed is a text", key, value.dump().substr(0, 60));
    }
    if (!line.contains("prompt")) fail(ErrorCode::corrupt_file, "has no 'prompt'");
    lines.push_back({line["prompt"].get<std::string>(), line.value("domain", "")});
  });
  if (lines.empty()) fail(ErrorCode::corrupt_file, "'{}' has no lines", path);
  return lines;
}

DistillSummary run_distill(const DistillJob& job) {
  check(job.distill);
  check_run_name(job.run.name);
  if (job.data.empty() == job.environment.empty())
    fail(ErrorCode::invalid_argument, "data is '{}' and environment is '{}', allowed is one of them", job.data, job.environment);
  check_choice("export_dtype", job.export_dtype, {"bf16", "f32"});
  std::unique_ptr<Environment> environment;
  std::vector<PromptLine> lines;
  if (!job.environment.empty()) environment = make_environment(job.environment);
  else lines = read_prompt_file(job.data);
  if (environment && environment->many_turns())
    fail(ErrorCode::unsupported, "environment is '{}', whose problems have many turns; allowed are those of one answer, as countdown", job.environment);
  check_teachers(job.teachers, environment ? environment->domains() : domains_of(lines));
  for (const TeacherSettings& teacher : job.teachers)
    if (teacher.is_far() && job.distill.over != "sampled")
      fail(ErrorCode::unsupported, "teacher '{}' is behind an address and says the sampled token's log-probability alone; over is '{}', allowed is sampled",
           teacher.name, job.distill.over);
  const std::vector<TeacherSettings> asked = settled_teachers(job.teachers);

  RlStackSettings settings = job.stack;
  settings.optimizer_folder = optimizer_folder(job.optimizer_state, job.run.runs);
  settings.stop = job.run.stop;
  settings.trained.seed = job.init_seed;
  settings.trained.train_unembed = false;
  settings.kept = kept_by_steps(settings.micro_batch, settings.runtime.ranks.empty());
  settings.batches_in_pieces = job.distill.over == "vocabulary";  // of several teachers (jobs/distill_in_head.cpp)
  RlStack stack(settings);
  Teachers teachers(asked, settings.runtime, stack.tokenizer(), stack.model().facts().vocabulary, job.run.stop, job.teacher_bytes);
  DistillSettings distill = job.distill;
  distill.learning_rate = job.learning_rate.value_or(
      default_learning_rate(parameters_of(stack.model().manifest()), {.adapter = settings.trained.rank > 0, .optimizer = settings.trained.optimizer}));
  DistillWork work(stack, teachers, environment ? prompts_of(*environment, distill, stack.tokenizer()) : prompts_of(lines, distill, stack.tokenizer()), distill,
                   job.run.stop);

  RunSettings settled = job.run;
  settled.resolved["learning_rate"] = fmt::format("{}", distill.learning_rate);
  settled.resolved["teachers_digest"] = teacher_digest(asked);
  if (!environment) settled.resolved["data_digest"] = prompt_digest(lines);
  Run run(settled);
  work.leave_differences_in(run.path() / "difference");
  if (run.directory().resumed()) {
    check_resumed_settings(run.directory().config(), settled.resolved, {.free = {"data", "teachers", "teacher_megabytes"}, .unsaid = job.run.unsaid});
    work.restore(run.directory());
  }
  if (const std::string from = run.directory().config().value("forked_from", ""); work.step() == 0 && !from.empty()) work.begin_from(from);
  run.started();

  DistillSummary summary;
  summary.run = run.path();
  summary.finished = run.go(work, {.label = "distill", .steps = job.distill.steps, .transcripts = false});
  summary.steps = work.step();
  summary.totals = work.totals();
  summary.teacher_forwards = teachers.forwards();
  if (!summary.finished) return summary;
  if (summary.totals.steps == 0)
    run.say(fmt::format("the run '{}' was finished at step {}: nothing is trained; --steps with a larger number goes on", run.path().string(), summary.steps));
  summary.exported = run.directory().export_folder();
  stack.export_model(summary.exported, job.export_dtype == "bf16" ? DType::bf16 : DType::f32);
  summary.weights_sha256 = stack.weights_sha256();
  return summary;
}

}  // namespace lockstep
