// `lockstep train KIND`: what its kinds share, mostly rows of options.
//   add_checkpoint_options(table, run); add_schedule_options(table, asked);
#pragma once
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/live_page.h"
#include "cli/profile_options.h"

namespace lockstep {

struct RunSettings;
struct SftAsked;
struct TrainedSettings;

int train_sft(const Arguments& arguments);
int run_train_rl(const Arguments& arguments);  // train_rl.cpp
int train_distill(const Arguments& arguments);
// `loss`: of a command that is named after it; empty: --loss says it.
int train_preference(const Arguments& arguments, const std::string& loss);

// Rows of runs that learn from a file of texts (sft, preference). What they fill outlives the table.
void add_reading_options(OptionTable& table, std::string& end_token, std::string& chat_template);
void add_schedule_options(OptionTable& table, SftAsked& asked);
// --checkpoint-every and --keep-last of every run.
void add_checkpoint_options(OptionTable& table, RunSettings& run);
// --init-seed of a run that trains a model that is there, so that the seed is an adapter's alone.
void add_adapter_seed(OptionTable& table, std::uint64_t& init_seed, const TrainedSettings& trained);
// --micro-batch, --checkpoint-activations, --optimizer-state: what memory training takes. `sequences` goes on from "Sequences per micro-batch, ".
void add_memory_options(OptionTable& table, std::int64_t& micro_batch, bool& checkpoint_activations, std::string& optimizer_state,
                        const std::string& sequences = "");
// --export-dtype of `what`: "model"; `profile` is the run's. `merged`: whether an adapter is exported as a whole model; null: never.
void add_export_dtype(OptionTable& table, std::string& dtype, const TrainedSettings& trained, const std::string& profile, const std::string& what,
                      const std::function<bool()>& merged = nullptr);
// --transcripts, --transcripts-every, --transcript-megabytes. `shown`: what of a step is written, in the words of the help.
void add_transcript_options(OptionTable& table, std::int64_t& transcripts, std::int64_t& every, std::int64_t& megabytes, const std::string& shown);

// Prints how to serve what a run of that name has exported, with the bits that it was trained with.
void print_serve_line(const RuntimeSettings& runtime, const TrainedSettings& trained, const std::string& name, const std::string& exported);

// The command's side of a run of any kind: the options that say how it is gone on with, watched and told of, its start and its end. The settings
// outlive it, and it outlives the table.
class RunCommand {
 public:
  explicit RunCommand(RunSettings& run) : run_(run) {}
  RunCommand(const RunCommand&) = delete;
  // The last rows of a table: --quiet, --resume, --fork, --page, those of cli/profile_options.h, --json, and --config. `bits` goes on from "Resume an
  // existing run"; `one_line` is what --json prints, where that is not all that is printed.
  void add_options(OptionTable& table, const std::string& bits, const std::string& one_line = "");
  // What config.json keeps of the run: every option's key and its value as text, and which of them nobody set; the command that resumes it. Then what it
  // does when it starts, and that it stops at a signal; signals are noted from its start on, since before there is nothing to save. With --fork the
  // name is that of a new run, to which the one that was named lends its newest checkpoint. Errors: not_found.
  void describe(const OptionTable& table, const std::string& kind, const Arguments& arguments);
  // Right before the work, in the process that leads it: what it computes from here on is measured where that was asked for (cli/profile_options.h), and
  // told at its end, on stderr.
  void measure(const RuntimeSettings& machine) { profile_.begin(machine); }
  // It was stopped and is saved: says `sentence` and how to go on. Returns the exit code.
  int stopped(const std::string& sentence);
  // It has come to its end: no page any more, and a report in its folder. Returns the report's file, or "".
  std::string finished(const std::filesystem::path& folder);
  bool json() const { return json_; }

 private:
  RunSettings& run_;
  std::string fork_;
  bool json_ = false;
  LivePage page_;
  ProfileOptions profile_;
  std::unique_ptr<HttpServer> page_server_;
};

}  // namespace lockstep
