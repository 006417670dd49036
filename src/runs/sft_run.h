// A supervised fine-tuning run: data, schedule, phases of the indexer, checkpoints, metrics, export. Resumes to the same
// bits. Knows no command line.
//   SftConfig config; config.run.name = "my-run"; run_sft(config, make_input);
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "base/output_path.h"
#include "runs/local_mtp.h"
#include "runs/run.h"
#include "runs/sft_data.h"
#include "runs/sft_plan.h"
#include "runs/share_prompts.h"
#include "serving/loading.h"
#include "trained/trained_settings.h"

namespace lockstep {

struct SftConfig {
  SftConfig() { run.name = "sft", run.checkpoint_every = 500; }
  RunSettings run;
  RuntimeSettings runtime;    // runtime.model: the folder to start from
  bool from_scratch = false;  // random initial weights instead of the folder's (it needs config.json and the tokenizer only)
  std::uint64_t init_seed = 0;
  double init_deviation = 0.02;
  std::uint64_t seed = 0;       // of the data order
  SftAsked asked;               // steps, epochs, batch, learning rate, warm-up, as far as given
  TrainedSettings trained;      // all weights, or an adapter (LoRA) over them; the adapter's seed is init_seed
  std::int64_t eval_every = 0;  // steps from one evaluation to the next; 0: an epoch's
  std::int64_t patience = 2;    // evaluations without a better loss after which the run stops; 0: never
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, max_norm = 1.0;
  double router_bias_rate = 1e-3;
  // Steps from which on the indexer learns, and attention is sparse (before: dense). Sparse from the start: 0 and 0.
  std::int64_t index_from = 0, sparse_from = 0;
  bool train_indexer = true;
  bool indexer_alone = false;          // with train_indexer: no other weight moves
  double hold_rate = 0;                // success rate at which kinds of problems are no longer trained (runs/held_rates.h); 0: always trained
  MtpSettings mtp;                     // the layer of multi-token prediction, trained beside the model; a new one begins with init_seed and init_deviation
  std::string share_prompts = "auto";  // of packs of one prompt (runs/prompt_packs.h): auto, off, backward
  std::int64_t share_prompts_from = kSharePromptsFrom;
  std::int64_t micro_batch = 0;
  bool checkpoint_activations = false;
  std::string optimizer_state = "memory";                // or "file" (runs/training_state.h)
  std::int64_t transcripts = 4, transcripts_every = 25;  // sequences to transcripts.jsonl, and steps between; 0: none
  std::string export_dtype = "bf16";
  std::string export_to;                // empty: runs/NAME/export
  Overwrite overwrite = Overwrite::no;  // of existing files in export_to
};

struct SftSummary {
  std::int64_t steps = 0, tokens = 0;
  double loss = 0, index_loss = 0, seconds = 0;  // last step's losses
  std::string weights_sha256, exported;
  std::string draft_sha256;                                               // of the layer of multi-token prediction, as weights_sha256; empty: none was trained
  bool interrupted = false, stopped_early = false, was_finished = false;  // was_finished: nothing was left to train
  std::optional<double> eval_before, eval_loss;                           // of the held-out sequences, at the start and of what is exported
  double best_eval = 0;
  std::int64_t best_step = 0;
};

// Training data and held-out data.
struct SftInput {
  std::unique_ptr<SftSource> train;
  std::vector<TrainSequence> held_out;  // may be empty
  bool declared = false;                // train's batches declare their prompts
};

// `make_input` gets the opened model (tokenizer, vocabulary). With run.resume the run goes on from its newest checkpoint.
SftSummary run_sft(const SftConfig& config, const std::function<SftInput(const OpenedModel&)>& make_input);

}  // namespace lockstep
