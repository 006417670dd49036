// A reinforcement-learning run on disk, runs/NAME: its stack, its metrics, its checkpoints and its export. It goes on from its
// newest checkpoint to the same bits, whatever ended it. Knows no environment and no loop: whoever runs the steps calls
// finished_step after each. One thread.
//   RlRun run(config, resume); while (run.step() < steps && !interrupted()) run.finished_step({{"loss", loss}});
#pragma once
#include "checkpoint/run_directory.h"
#include "observe/bounded_log.h"
#include "runs/rl_stack.h"

namespace lockstep {

struct RlRunConfig {
  std::string name = "rl", runs = "runs";
  RlStackSettings stack;
  std::string optimizer_state = "memory";  // or "file" (runs/training_state.h); the stack's optimizer_folder follows
  std::int64_t checkpoint_every = 20;  // steps; 0: at the end and on an interrupt alone
  std::int64_t keep_last = 2;          // checkpoints; 0: all
  std::int64_t transcript_bytes = 32 << 20;  // transcripts.jsonl and its older half together
  std::string export_dtype = "bf16";   // or f32
  Json resolved = Json::object();      // goes to config.json
  std::string resume_line;             // what the user types to go on
};

class RlRun {
 public:
  // Errors: those of RlStack and RunDirectory; invalid_argument when a resumed run's config differs (runs/run_settings.h).
  RlRun(const RlRunConfig& config, bool resume);

  RlStack& stack() { return stack_; }
  std::int64_t step() const { return step_; }  // steps that are done
  // Lines of transcripts.jsonl, each with "step": step() + 1; before finished_step.
  void log_transcripts(const std::vector<nlohmann::ordered_json>& transcripts);
  // Logs the metrics (with "step": step() + 1), counts the step, saves when it is time.
  void finished_step(const nlohmann::ordered_json& metrics);
  // A checkpoint of the current step, unless it stands.
  void save();
  // Writes runs/NAME/export and returns it.
  std::filesystem::path export_model();
  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  RlRunConfig config_;
  RlStack stack_;
  RunDirectory directory_;
  std::int64_t step_ = 0, saved_at_ = -1;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<BoundedLog> transcripts_;
};

// The learning rate of a step (train/schedule.h). Error invalid_argument for an unknown schedule.
double scheduled_rate(const std::string& schedule, double peak, std::int64_t warmup, std::int64_t steps, std::int64_t step);
std::vector<std::string> schedule_names();

}  // namespace lockstep
