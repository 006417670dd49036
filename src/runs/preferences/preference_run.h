// A run that learns from preferences: which of two answers is better, or which answers are good. The reference model is what training starts from;
// its log-probabilities are scored once, before the first step, and saved in runs/NAME/reference.json. Resumes to the same bits. Knows no command
// line.
//   PreferenceConfig config; config.preference.loss = "ipo"; run_preference(config, make_input);
// A step is one forward and one backward: each batch's forward is kept until the loss's derivatives are known (train/kept_passes.h), and a pair's
// answers share their prompt's rows, in the forward or in both (PreferenceConfig::share_prompts).
#pragma once
#include <functional>
#include <optional>

#include "base/output_path.h"
#include "losses/preference_losses.h"
#include "runs/preferences/preference_data.h"
#include "runs/run.h"
#include "runs/sft_plan.h"
#include "runs/share_prompts.h"
#include "serving/loading.h"
#include "trained/trained_settings.h"

namespace lockstep {

struct PreferenceConfig {
  PreferenceConfig() { run.name = "preference", run.checkpoint_every = 500; }
  RunSettings run;
  RuntimeSettings runtime;  // runtime.model: the folder to start from
  TrainedSettings trained;  // all weights, or an adapter; its seed is init_seed
  std::uint64_t init_seed = 0;
  PreferenceSettings preference;
  std::uint64_t seed = 0;       // of the data order
  SftAsked asked;               // steps, epochs, batch (pairs), learning rate, warm-up, as far as given
  std::int64_t eval_every = 0;  // steps from one evaluation to the next; 0: an epoch's
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, max_norm = 1.0;
  // What the answers to one prompt share: its rows in the forward (no bit changes), in the backward too (declared; a pair's own, or with labels those of
  // the batch), or none. Never automatic.
  SharePrompts share_prompts = SharePrompts::forward;
  std::int64_t micro_batch = 0;  // sequences; a pair is two
  bool checkpoint_activations = false;
  std::string optimizer_state = "memory";  // or "file" (runs/training_state.h)
  std::string export_dtype = "bf16";
  std::string export_to;                // empty: runs/NAME/export
  Overwrite overwrite = Overwrite::no;  // of existing files in export_to
};

// Means over pairs, or over labelled answers.
struct PreferenceFigures {
  double loss = 0;
  double accuracy = 0;  // share of pairs whose chosen answer has the higher reward; with labels: over all pairs of a good and a bad answer
  double chosen_reward = 0, rejected_reward = 0;  // with labels: of good answers, of bad ones
  double chosen_logprob = 0, rejected_logprob = 0;
  double shift = 0;  // KTO
  double margin() const { return chosen_reward - rejected_reward; }
};

struct PreferenceSummary {
  std::int64_t steps = 0, tokens = 0;
  std::int64_t rows = 0;                                   // of the model that forwards of steps computed; what answers share is computed once
  PreferenceFigures last;                                  // of the last step's batch, before its update
  std::optional<PreferenceFigures> eval_before, eval_now;  // of held-out items
  std::string weights_sha256, exported;
  double seconds = 0, reference_seconds = 0;       // in all, checkpoints too; of these the reference's scores, if made here
  bool interrupted = false, was_finished = false;  // was_finished: nothing was left to train
};

struct PreferenceInput {
  std::vector<PreferenceItem> train, held_out;  // the latter may be empty
};

// The plan of such a run: that of fine-tuning with a tenth of its learning rate, and one epoch.
SftPlan plan_preference(const SftAsked& asked, std::int64_t items, std::int64_t parameters);

// With run.resume the run goes on from its newest checkpoint. Errors: those of LocalTrainer, RunDirectory and make_input; not_found when a
// begun run's reference.json is gone; invalid_argument when it was begun with prompts shared in the backward, and this is not, or the other way round.
PreferenceSummary run_preference(const PreferenceConfig& config, const std::function<PreferenceInput(const OpenedModel&)>& make_input);

}  // namespace lockstep
