// `lockstep train sft|rl|preference|distill`, and one command a loss of preferences.
#include "cli/train_command.h"

#include <algorithm>
#include <cstdio>

#include "base/choice.h"
#include "base/signals.h"
#include "cli/common_options.h"
#include "cli/toml.h"
#include "launch/launch_word.h"
#include "losses/preference_losses.h"
#include "rl/algorithms/algorithms.h"
#include "runs/run.h"
#include "runs/sft_plan.h"
#include "runs/training_state.h"
#include "trained/trained_settings.h"

namespace lockstep {

namespace {
// --fork NEW: returns the newest checkpoint ("" without --fork, and when NEW is gone on with) and sets the name.
std::string fork_of(const std::string& runs, std::string& name, const std::string& fork, bool resume) {
  if (fork.empty()) return {};
  if (fork == name) throw UsageError(fmt::format("--fork is '{}', the run that it would begin from; name a new one", fork));
  const std::string from = resume ? std::string() : newest_checkpoint(std::filesystem::path(runs) / name);
  name = fork;
  return from;
}

std::string resume_line(const std::string& kind, const Arguments& arguments) {
  std::string line = "lockstep train " + kind;
  for (const std::string& argument : arguments) {
    if (argument == "--resume") continue;
    const bool plain = argument.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=,:") == std::string::npos;
    line += plain && !argument.empty() ? " " + argument : " '" + argument + "'";
  }
  return line + " --resume";
}
}  // namespace

void RunCommand::add_options(OptionTable& table, const std::string& bits, const std::string& one_line) {
  table.flag("quiet", &run_.quiet, "No progress");
  table.flag("resume", &run_.resume, fmt::format("Resume an existing run{}; more --steps are allowed, changes of its mathematics are refused", bits))
      .command_line_only();
  table
      .text("fork", &fork_, "NAME",
            "Begin a new run of this name with the weights of the newest checkpoint of the run --name: other settings, step 0, a fresh optimizer")
      .command_line_only();
  page_.add_options(table);
  profile_.add_options(table);
  if (one_line.empty()) add_json_option(table, &json_);
  else add_json_option(table, &json_, one_line);
  table.accept_config();
}

void RunCommand::describe(const OptionTable& table, const std::string& kind, const Arguments& arguments) {
  const std::string forked_from = fork_of(run_.runs, run_.name, fork_, run_.resume);
  run_.resolved = Json::object();
  for (const TomlSetting& setting : flatten_toml(table.rows().resolved_toml(), "the resolved configuration")) {
    run_.resolved[setting.key] = setting.is_list ? Json(setting.values) : Json(setting.values.at(0));
    std::string option = setting.key;
    std::replace(option.begin(), option.end(), '_', '-');
    if (!table.given(option)) run_.unsaid.push_back(setting.key);
  }
  run_.resolved["name"] = run_.name;
  if (!forked_from.empty()) run_.resolved["forked_from"] = forked_from;
  run_.resume_line = resume_line(kind, arguments);
  if (!run_.quiet) run_.say = [](const std::string& sentence) { std::fprintf(stderr, "%s\n", sentence.c_str()); };
  run_.on_start = [this] {
    page_server_ = page_.start({.roots = {run_.runs}, .live = run_.name}, run_.name, stderr);
    install_interrupt_handlers();
  };
  run_.stop = interrupt_token();
  run_.launch_start = launch_start();
}

int RunCommand::stopped(const std::string& sentence) {
  profile_.say(stderr);
  if (has_launcher()) std::fprintf(stderr, "%s\n", sentence.c_str());  // which goes on with it, or says how
  else std::fprintf(stderr, "%s. To go on:\n  %s\n", sentence.c_str(), run_.resume_line.c_str());
  return 128 + interrupt_signal();
}

std::string RunCommand::finished(const std::filesystem::path& folder) {
  page_server_.reset();
  profile_.say(stderr);
  return write_report_beside(folder);
}

void add_reading_options(OptionTable& table, std::string& end_token, std::string& chat_template) {
  table.text("end-token", &end_token, "TOKEN",
             "What ends a trained turn or text: a token or its id (default: the template's own, tokenizer_config.json's eos_token)");
  table.input("chat-template", &chat_template, "FILE", "A Jinja template for messages instead of the model's");
}

void add_schedule_options(OptionTable& table, SftAsked& asked) {
  table.choice("schedule", &asked.schedule, {"constant", "linear", "cosine"}, "Learning rate after the warm-up");
  table.number("final-fraction", &asked.final_fraction, 0, 1, "X", "Share of the peak learning rate at the last step");
  table.refused("with --schedule constant", [&asked] { return asked.schedule == "constant"; });
  table.integer("warmup", &asked.warmup, 0, std::int64_t{1} << 40, "N", "Steps of linear warm-up, at most the run's", "a tenth of the run, at most 100");
}

void add_checkpoint_options(OptionTable& table, RunSettings& run) {
  table.integer("checkpoint-every", &run.checkpoint_every, 0, std::int64_t{1} << 40, "N", "Steps between checkpoints; 0: only at the end and on an interrupt");
  table.integer("keep-last", &run.keep_last, 0, 1 << 20, "N", "Checkpoints to keep, 0: all");
}

void add_adapter_seed(OptionTable& table, std::uint64_t& init_seed, const TrainedSettings& trained) {
  table.seed("init-seed", &init_seed, "Seed of an adapter's initial weights");
  table.refused("without --adapter-rank", [&trained] { return trained.rank == 0; });
}

void add_memory_options(OptionTable& table, std::int64_t& micro_batch, bool& checkpoint_activations, std::string& optimizer_state,
                        const std::string& sequences) {
  table.integer("micro-batch", &micro_batch, 0, 1 << 20, "N", fmt::format("Sequences per micro-batch, {}0: all; less memory, the same bits", sequences));
  table.flag("checkpoint-activations", &checkpoint_activations, "Recompute activations in the backward pass: less memory, the same bits");
  table.choice("optimizer-state", &optimizer_state, {"memory", "file"},
               "Where the optimizer keeps moments and fp32 masters: memory, or a file without a name on the disk of --runs, for models whose state is larger "
               "than memory; changes no bit");
}

void add_export_dtype(OptionTable& table, std::string& dtype, const TrainedSettings& trained, const std::string& profile, const std::string& what,
                      const std::function<bool()>& merged) {
  table.choice("export-dtype", &dtype, {"bf16", "f32"}, fmt::format("Number format of the exported {}", what));
  table.refused("with --adapter-rank, which exports fp32", [&trained, merged] { return trained.rank > 0 && !(merged && merged()); });
  table.refused("with a --profile whose weights train in few bits, which exports fp32",
                [&profile] { return profile == "cpu-int4-qat" || profile == "cpu-fp8" || profile == "cpu-mxfp8" || profile == "cpu-mxfp8-experts"; });
}

void print_serve_line(const RuntimeSettings& runtime, const TrainedSettings& trained, const std::string& name, const std::string& exported) {
  const bool adapter = trained.rank > 0;
  const std::string profile = runtime.profile == RuntimeSettings().profile ? "" : " --profile " + runtime.profile;
  std::printf("try it: lockstep serve --model %s%s%s\n", adapter ? runtime.model.c_str() : exported.c_str(), profile.c_str(),
              adapter ? fmt::format(" --adapter {}={}", name, exported).c_str() : "");
}

void add_transcript_options(OptionTable& table, std::int64_t& transcripts, std::int64_t& every, std::int64_t& megabytes, const std::string& shown) {
  const auto none = [&transcripts] { return transcripts == 0; };
  table.integer("transcripts", &transcripts, 0, 1 << 10, "N", shown + "; 0: none");
  table.integer("transcripts-every", &every, 1, 1 << 30, "N", "Steps between transcripts");
  table.refused("with --transcripts 0", none);
  table.integer("transcript-megabytes", &megabytes, 1, 1 << 20, "N", "Most megabytes of transcripts; the older half is deleted first");
  table.refused("with --transcripts 0", none);
}

int train_command(const Arguments& arguments) {
  const std::string kind = arguments.empty() ? "--help" : arguments[0];
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (kind == "sft") return train_sft(rest);
  if (kind == "rl") return run_train_rl(rest);
  if (kind == "distill") return train_distill(rest);
  if (kind == "preference") return train_preference(rest, "");
  const std::vector<std::string> losses = preference_names();
  if (std::find(losses.begin(), losses.end(), kind) != losses.end()) return train_preference(rest, kind);
  if (kind == "--help" || kind == "-h") {
    const std::string text = fmt::format(
        "usage: lockstep train sft|rl|preference|distill [options]\n\n"
        "  lockstep train sft --config recipes/countdown_sft.toml\n"
        "  lockstep train rl --config recipes/countdown_rl.toml\n"
        "  lockstep train preference --loss dpo --model DIR --data pairs.jsonl\n"
        "  lockstep train distill --model DIR --teachers teachers.toml --data prompts.jsonl\n\n"
        "A loss of preferences is a command too, as `lockstep train dpo`: {}.\n"
        "`lockstep train KIND --help` lists every option.\n",
        fmt::join(losses, ", "));
    std::fputs(text.c_str(), stdout);
    return kExitOk;
  }
  for (const AlgorithmRow& row : algorithm_rows())  // a name like those of preferences' losses: of `grpo` the nearest kind is orpo
    if (row.name == kind) throw UsageError(fmt::format("train: unknown kind '{}'; here it is `lockstep train rl --algorithm {}`", kind, kind));
  std::vector<std::string> kinds{"sft", "rl", "preference", "distill"};
  kinds.insert(kinds.end(), losses.begin(), losses.end());
  throw UsageError(fmt::format("train: unknown kind '{}', {}", kind.substr(0, 60), allowed_are(kind, kinds)));
}

}  // namespace lockstep
