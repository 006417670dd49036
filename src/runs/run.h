// A training run of any kind: its folder, metrics, transcripts, checkpoints, and the token that stops it.
//   Run run({.name = "a", .stop = source.token()}); const bool finished = run.go(work, {.label = "sft", .steps = 100});
// A command, a server and a test start one alike. What is trained is a RunWork, a step at a time; a stopped run resumes to the same bits. Knows no
// trainer and no command line. One thread runs it; any thread may stop it.
#pragma once
#include <functional>
#include <optional>

#include "base/stop_token.h"
#include "checkpoint/run_directory.h"
#include "observe/bounded_log.h"

namespace lockstep {

// Settings of any kind of run.
struct RunSettings {
  std::string name = "run", runs = "runs";
  Json resolved = Json::object();                          // goes to config.json
  std::vector<std::string> unsaid = {};                    // its keys that nobody set, with default values (ResumeRule::unsaid)
  bool resume = false;                                     // continue an existing run
  std::string resume_line = {};                            // the command that resumes it
  std::int64_t checkpoint_every = 0;                       // steps; 0: only at the end and when it is stopped
  std::int64_t keep_last = 2;                              // checkpoints; 0: all
  std::int64_t transcript_bytes = std::int64_t{32} << 20;  // transcripts.jsonl and its older half together
  bool quiet = false;                                      // no progress
  int launch_start = 0;                                    // of `lockstep launch`, in each line of metrics; 0: none
  StopToken stop = {};                                     // when set, the run saves and ends after the present step
  // Callbacks: the folder is locked, a step was taken, a message for people.
  std::function<void()> on_start = {};
  std::function<void(std::int64_t step)> on_step = {};
  std::function<void(const std::string&)> say = {};
};

// The report of a step.
struct RunStep {
  nlohmann::ordered_json metrics;                        // a line of metrics.jsonl
  std::vector<nlohmann::ordered_json> transcripts = {};  // of transcripts.jsonl
  std::string note = {};                                 // beside the progress
  std::int64_t tokens = 0;
  bool save = false;  // save a checkpoint now, even if it is not due
};

class RunWork {
 public:
  virtual ~RunWork() = default;
  virtual std::int64_t step() const = 0;  // number of steps done
  virtual bool finished() const = 0;
  // Takes the next step. Error cancelled when it was stopped in the middle: the step does not count.
  virtual RunStep take_step() = 0;
  // Begins to save, and may write while the next steps are taken; finish_save returns when the checkpoint is in place.
  virtual void save(const RunDirectory& run, std::int64_t keep_last) = 0;
  virtual void finish_save() {}
};

struct RunShape {
  std::string label;  // of the progress
  std::int64_t steps = 0;
  bool transcripts = true;
};

class Run {
 public:
  // The folder runs/NAME. Errors: those of RunDirectory::open.
  explicit Run(RunSettings settings);
  // A part of a run in a folder that the caller holds: writes metrics-NAME.jsonl and transcripts-NAME.jsonl, and saves nothing.
  Run(RunSettings settings, const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  bool saves() const { return directory_.has_value(); }
  const RunDirectory& directory() const { return *directory_; }  // for a run that saves
  void say(const std::string& sentence) const;
  // Called when the settings have been checked: announces the run.
  void started() const;
  // Runs steps until the work is finished or the token stops it, then saves a checkpoint unless there is one. Returns whether it is finished.
  bool go(RunWork& work, const RunShape& shape);

 private:
  void save(RunWork& work);
  RunSettings settings_;
  std::optional<RunDirectory> directory_;
  std::filesystem::path path_, metrics_, transcripts_;
  std::int64_t saved_at_ = -1;
};

}  // namespace lockstep
