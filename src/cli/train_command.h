// `lockstep train KIND`: functions that several kinds use, mostly for rows of options.
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
// `loss`: the loss of a command that is named after it (`train dpo`); empty: --loss chooses it.
int train_preference(const Arguments& arguments, const std::string& loss);

// Rows of runs that learn from a file of texts (sft, preference). What they fill outlives the table.
void add_reading_options(OptionTable& table, std::string& end_token, std::string& chat_template);
void add_schedule_options(OptionTable& table, SftAsked& asked);
// --checkpoint-every and --keep-last of every run.
void add_checkpoint_options(OptionTable& table, RunSettings& run);
// --init-seed of a run that trains an existing model, so that the seed is only used for an adapter.
void add_adapter_seed(OptionTable& table, std::uint64_t& init_seed, const TrainedSettings& trained);
// --micro-batch, --checkpoint-activations, --optimizer-state, which change the memory of training. `sequences` continues the help text "Sequences
// per micro-batch, ".
void add_memory_options(OptionTable& table, std::int64_t& micro_batch, bool& checkpoint_activations, std::string& optimizer_state,
                        const std::string& sequences = "");
// --export-dtype of `what`: "model"; `profile` is the run's. `merged`: whether an adapter is exported as a whole model; null: never.
void add_export_dtype(OptionTable& table, std::string& dtype, const TrainedSettings& trained, const std::string& profile, const std::string& what,
                      const std::function<bool()>& merged = nullptr);
// --transcripts, --transcripts-every, --transcript-megabytes. `shown`: the words of the help for what is written of a step.
void add_transcript_options(OptionTable& table, std::int64_t& transcripts, std::int64_t& every, std::int64_t& megabytes, const std::string& shown);

// Prints the command that serves a run's exported model with the bits that it was trained with.
void print_serve_line(const RuntimeSettings& runtime, const TrainedSettings& trained, const std::string& name, const std::string& exported);

// The command's part of a run of any kind: the options for resuming, watching and reporting it, its start and its end. The settings outlive it,
// and it outlives the table.
class RunCommand {
 public:
  explicit RunCommand(RunSettings& run) : run_(run) {}
  RunCommand(const RunCommand&) = delete;
  // Adds the last rows of a table: --quiet, --resume, --fork, --page, those of cli/profile_options.h, --json, and --config. `bits` continues the
  // help text "Resume an existing run"; `one_line`: the help of --json where the usual one does not fit.
  void add_options(OptionTable& table, const std::string& bits, const std::string& one_line = "");
  // Sets what config.json keeps of the run: every option's key and value as text, which of them were not given, and the command that resumes it.
  // Also sets what the run does when it starts, and that it stops at a signal (from its start on: before there is nothing to save). With --fork
  // the name is that of a new run, which begins with the newest checkpoint of the named one. Errors: not_found.
  void describe(const OptionTable& table, const std::string& kind, const Arguments& arguments);
  // Call right before the work, in the process that leads it: from here on operations are measured if that was asked for (cli/profile_options.h), and
  // reported on stderr at the run's end.
  void measure(const RuntimeSettings& machine) { profile_.begin(machine); }
  // For a run that was stopped and is saved: prints `sentence` and how to resume the run. Returns the exit code.
  int stopped(const std::string& sentence);
  // For a run that is complete: ends the page and writes a report into the run's folder. Returns the report's file, or "".
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
