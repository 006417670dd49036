// Starts a reinforcement learning run on disk (`lockstep train rl`), from a command, a server or a test.
//   RlJob job; job.run.name = "my-run"; const RlSummary summary = run_rl(job);
// Knows no command line. One thread; any thread may stop it (RunSettings::stop).
#pragma once
#include "jobs/rl_publishing.h"
#include "jobs/rl_work.h"

namespace lockstep {

struct RlJob {
  RlJob() { run.name = "rl", run.checkpoint_every = 20; }
  RunSettings run;
  RlStackSettings stack;  // its profile mix, optimizer_folder, sharing of prompts and stop follow from the rest
  RlSettings rl;
  std::uint64_t init_seed = 0;             // of initial weights: an adapter's, or a new layer's of multi-token prediction
  std::string optimizer_state = "memory";  // or "file" (runs/training_state.h)
  std::string export_dtype = "bf16";       // or f32
  std::int64_t transcripts = 8, transcripts_every = 1;
  bool stop_at_difference = true;  // of a token's two log-probabilities, before anything is learned from it
  PublishSettings publish;
  bool allow_profile_mix = false;  // rollouts may come from another numerics profile than the trainer's
};

struct RlSummary {
  std::int64_t steps = 0;  // done so far, those before a resume included
  RlTotals totals;
  bool finished = false;  // or it was stopped, and saved
  std::string weights_sha256;
  std::string draft_sha256;             // of the layer of multi-token prediction, where one was trained
  std::filesystem::path run, exported;  // the latter of a finished one
  std::string critic_sha256;            // of the critic, where there is one
  std::filesystem::path critic_exported;
};

// The default peak learning rate: the recipe's, when AdamW trains all weights; ten times that for an adapter. With an optimizer that leaves some
// parameters to AdamW, the rate at which those get the recipe's.
double default_rl_learning_rate(const TrainedSettings& trained);

// Errors: those of RlStack, RunDirectory and RlWork; invalid_argument when a resumed run's settings differ (runs/run_settings.h).
RlSummary run_rl(const RlJob& job);

}  // namespace lockstep
